"""The audit trail: who changed a record by hand, when, why, and from what to what. Never a payload or a result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from onceward.errors import ConfigurationError

from .record import Record
from .requests import Answer

AUDIT_RETENTION = 400 * 24 * 3600 * 1_000_000
"""Entries are purged after 400 days: last year's can still be looked up, and the trail does not grow for ever."""

MAX_REASON_LENGTH = 1000  # characters: a sentence or a link to the ticket, not the ticket

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AuditSignature(Struct, frozen=True):
    """Who does it, and why. `verb` is what they asked for, which may be more than the store's own verb says."""

    verb: str
    who: str
    why: str = ""
    detail: str = ""


class AuditEntry(Struct, frozen=True):
    """One change by hand, at the store's time `at`. `id` is empty and `count` counts where many records went."""

    at: int
    verb: str
    who: str
    why: str = ""
    detail: str = ""
    id: bytes = b""
    scope: str = ""
    key: str = ""
    state_before: str = ""
    state_after: str = ""
    token_before: int = 0
    token_after: int = 0
    count: int = 1

    @property
    def when(self) -> datetime:
        """`at`, for people."""
        return _EPOCH + timedelta(microseconds=self.at)


class AuditFilter(Struct, frozen=True):
    """Which entries are wanted; empty means all. `within` is their greatest age, by the store's clock."""

    id: bytes | None = None
    scope: str | None = None
    key: str | None = None
    within: int | None = None


def signature(verb: str, who: str, why: str = "", detail: str = "") -> AuditSignature:
    """A signature that every store can hold."""
    if not isinstance(why, str):
        raise ConfigurationError(
            f"why is {type(why).__qualname__}, and a reason is text", hint='why="the host is gone"'
        )
    if len(why) > MAX_REASON_LENGTH:
        raise ConfigurationError(
            f"a reason of {len(why)} characters is too long for the audit trail",
            hint=f"up to {MAX_REASON_LENGTH}; keep the rest elsewhere, and say where",
        )
    return AuditSignature(verb, _text(who), _text(why), detail)


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def audit_entries(
    signed: AuditSignature, before: Callable[[bytes], Record | None], answers: Iterable[Answer]
) -> list[AuditEntry]:
    """One entry for each record that changed. What changed nothing leaves no trace."""
    pairs = ((before(answer.record.id), answer.record, answer.now) for answer in answers if answer.record is not None)
    return [_entry(signed, was, record, now) for was, record, now in pairs if was is not None and was is not record]


def _entry(signed: AuditSignature, before: Record, after: Record, now: int) -> AuditEntry:
    return AuditEntry(
        at=now,
        verb=signed.verb,
        who=signed.who,
        why=signed.why,
        detail=signed.detail,
        id=after.id,
        scope=after.scope,
        key=after.key,
        state_before=before.state.value,
        state_after=after.state.value,
        token_before=before.token,
        token_after=after.token,
    )


def purge_entry(signed: AuditSignature, count: int, now: int) -> AuditEntry:
    """Many records at once: how many is all that is kept."""
    return AuditEntry(now, signed.verb, signed.who, signed.why, signed.detail, count=count)


def matches_filter(entry: AuditEntry, wanted: AuditFilter, now: int) -> bool:
    """For stores that look through their entries one by one."""
    return (
        (wanted.id is None or entry.id == wanted.id)
        and (wanted.scope is None or entry.scope == wanted.scope)
        and (wanted.key is None or entry.key == wanted.key)
        and (wanted.within is None or entry.at > now - wanted.within)
    )
