"""Exit codes: one table for the code, the help and the docs. Those above 63 follow sysexits."""

from __future__ import annotations

from enum import IntEnum
from typing import Self

from onceward import errors


class Exit(IntEnum):
    """How the command ended, for scripts: the code, and its `meaning`."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        found = int.__new__(cls, code)
        found._value_, found.meaning = code, meaning
        return found

    OK = 0, "done"
    ATTENTION = (
        1,
        "doctor, check, operations, recover, import, erase: something needs attention; otherwise: not confirmed",
    )
    USAGE = 2, "invalid flag, setting or key; nothing was done"
    MISMATCH = 65, "run: the key was used before with another command; nothing was run"
    ABSENT = 66, "there is no such record; erase: nothing matches"
    SEVERAL = 67, "several records match; narrow it with --scope or id:<hex>"
    DOWN = 69, "the store is locked, unreachable or too slow; try again"
    UNKNOWN = 70, "run: the command ran, but its record was not confirmed"
    REFUSED = 71, "refused: the record is not in a state for this, or --yes is missing"
    FULL = 73, "the store is full; nothing was claimed or changed"
    BROKEN = 74, "the store is missing, damaged, read-only or of another version"
    RUNNING = 75, "run: another worker is still processing this key (after --wait)"
    PARKED = 76, "run: it is unknown how an earlier attempt ended; see onceward resolve"
    INCOMPLETE = 79, "run: done before, but its output was not stored completely"


def help_table() -> str:
    """Return the codes for a help text."""
    own = [f"  {code.value:>3}  {code.meaning}" for code in Exit]
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
