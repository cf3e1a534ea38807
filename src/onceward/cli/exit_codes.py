"""Exit codes: one table for the code, the help and the docs. Those above 63 follow sysexits."""

from __future__ import annotations

from enum import IntEnum

from onceward import errors


class Exit(IntEnum):
    """How the command ended, for scripts."""

    OK = 0
    ATTENTION = 1
    USAGE = 2
    MISMATCH = 65
    ABSENT = 66
    SEVERAL = 67
    DOWN = 69
    UNKNOWN = 70
    REFUSED = 71
    FULL = 73
    BROKEN = 74
    RUNNING = 75
    PARKED = 76
    INCOMPLETE = 79


MEANINGS = {
    Exit.OK: "done",
    Exit.ATTENTION: "doctor, check, operations, recover, import: something needs attention; otherwise: not confirmed",
    Exit.USAGE: "invalid flag, setting or key; nothing was done",
    Exit.MISMATCH: "run: the key was used before with another command; nothing was run",
    Exit.ABSENT: "there is no such record",
    Exit.SEVERAL: "several records match; narrow it with --scope or id:<hex>",
    Exit.DOWN: "the store is locked, unreachable or too slow; try again",
    Exit.UNKNOWN: "run: the command ran, but its record was not confirmed",
    Exit.REFUSED: "refused: the record is not in a state for this, or --yes is missing",
    Exit.FULL: "the store is full; nothing was claimed or changed",
    Exit.BROKEN: "the store is missing, damaged, read-only or of another version",
    Exit.RUNNING: "run: another worker is still processing this key (after --wait)",
    Exit.PARKED: "run: it is unknown how an earlier attempt ended; see onceward resolve",
    Exit.INCOMPLETE: "run: done before, but its output was not stored completely",
}


def help_table() -> str:
    """Return the codes for a help text."""
    own = [f"  {code.value:>3}  {meaning}" for code, meaning in MEANINGS.items()]
    return "\n".join(["\b", "Exit codes:", *own])


def exit_code_for(error: errors.OncewardError) -> Exit:
    """Return the exit code for an error of the library."""
    return next(code for kind, code in _CODES if isinstance(error, kind))


_CODES: tuple[tuple[type[errors.OncewardError], Exit], ...] = (
    (errors.StoreUnavailable, Exit.DOWN),
    (errors.StoreFull, Exit.FULL),
    (errors.StoreError, Exit.BROKEN),
    (errors.AlreadyRunning, Exit.RUNNING),
    (errors.OutcomeParked, Exit.PARKED),
    (errors.PayloadMismatch, Exit.MISMATCH),
    (errors.NotAcquired, Exit.REFUSED),
    (errors.ClaimError, Exit.UNKNOWN),
    (errors.ResultError, Exit.INCOMPLETE),
    (errors.OncewardError, Exit.USAGE),
)
"""The first matching type decides, so subclasses come first."""
