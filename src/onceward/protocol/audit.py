"""The audit trail: who changed a record manually, when, why, and how its state changed. No payloads, no results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from onceward.errors import ConfigurationError

from .record import Record
from .requests import Answer

AUDIT_RETENTION = 400 * 24 * 3600 * 1_000_000
"""Entries are purged after 400 days, so that a full year can be looked up and the trail does not grow without limit."""

MAX_REASON_LENGTH = 1000  # characters: a sentence or a link to the ticket, not the ticket

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AuditSignature(Struct, frozen=True):
    """Who makes a manual change, and why. `verb` is the command; it may be more specific than the store's verb."""

    verb: str
    who: str
    why: str = ""
    detail: str = ""


class AuditEntry(Struct, frozen=True):
    """One manual change, at the store's time `at` (µs since 1970).

    - `verb`: the command, such as `forget`; `detail`: more about it.
    - `who`: the operator; `why`: the reason that was given.
    - `id`, `scope`, `key`: the record. The key is readable. A purge has none of them, and counts its records in
      `count`.
    - `state_before`, `state_after`, `token_before`, `token_after`: what changed.
    """

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
        """Return `at` as a datetime."""
        return _EPOCH + timedelta(microseconds=self.at)


class AuditFilter(Struct, frozen=True):
    """Which entries to return; empty means all. `within` is their maximum age in µs, by the store's clock."""

    id: bytes | None = None
    scope: str | None = None
    key: str | None = None
    within: int | None = None


def signature(verb: str, who: str, why: str = "", detail: str = "") -> AuditSignature:
    """Return a validated signature that every store can save."""
    if not isinstance(why, str):
        raise ConfigurationError(f"why must be text, not {type(why).__qualname__}", hint='why="the host is gone"')
    if len(why) > MAX_REASON_LENGTH:
        raise ConfigurationError(
            f"a reason of {len(why)} characters is too long for the audit trail",
            hint=f"write at most {MAX_REASON_LENGTH} characters; put the rest elsewhere and add a link",
        )
    return AuditSignature(verb, _text(who), _text(why), detail)


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def audit_entries(
    signed: AuditSignature, before: Callable[[bytes], Record | None], answers: Iterable[Answer]
) -> list[AuditEntry]:
    """Return one entry for each record that changed. An unchanged record gets no entry."""
    pairs = ((before(answer.record.id), answer.record, answer.now) for answer in answers if answer.record is not None)
    return [_entry(signed, old, record, now) for old, record, now in pairs if old is not None and old is not record]


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
    """Return the entry for a purge: only the number of deleted records is kept."""
    return AuditEntry(now, signed.verb, signed.who, signed.why, signed.detail, count=count)


def redacted(entry: AuditEntry) -> AuditEntry:
    """Return the entry without the fields that name a key. The reason may name one too, so it is removed."""
    return replace(entry, id=b"", scope="", key="", why="")


def matches_filter(entry: AuditEntry, wanted: AuditFilter, now: int) -> bool:
    """Return whether the entry matches, for stores that filter their entries one by one."""
    return (
        (wanted.id is None or entry.id == wanted.id)
        and (wanted.scope is None or entry.scope == wanted.scope)
        and (wanted.key is None or entry.key == wanted.key)
        and (wanted.within is None or entry.at > now - wanted.within)
    )
