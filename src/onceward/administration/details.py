"""One key in detail, the queue of parked records, and the search for a key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from onceward.errors import ConfigurationError
from onceward.keys.key import make_key, parse_scope
from onceward.keys.readable import escape
from onceward.protocol.audit import AuditEntry, AuditFilter
from onceward.protocol.listing import ListingFilter
from onceward.protocol.message_note import is_parked_message
from onceward.protocol.reasons import DEFAULT_REASONS, Reasons
from onceward.protocol.record import Record, RecordState
from onceward.protocol.transitions import Row, row_of

from . import audit_text, listing, policy_text
from .actions import ACTIONS, allows, is_offered
from .explain import sentences
from .model import ActionOption, DeadLetters, Evidence, KeyDetail, KeyRow, Page
from .record_view import key_row
from .sagas import journal_or_none, saga_row, saga_sentences
from .timeline import MAX_ENTRIES, read_life
from .times import time_of
from .totals import DAY, scopes_of, totals_of
from .values import stored_input, stored_result

if TYPE_CHECKING:
    from .admin import Admin

TIMEOUT: Final = 10.0
MAX_SCOPES: Final = 250  # scopes in which an exact key is looked up, in one read
_hexadecimal = re.compile(r"(?:id:)?([0-9a-fA-F]{64})").fullmatch

ATTEMPT_STATES: Final = {
    Row.PENDING_LIVE: "RUNNING",
    Row.PENDING_LAPSED: "ABANDONED",
    Row.RELEASED_UNVERIFIED: "ABANDONED",
    Row.COMPLETED: "SETTLED",
    Row.COMPLETED_EXPIRED: "SETTLED",
    Row.FAILED_RETRYABLE: "SETTLED",
    Row.FAILED_FINAL: "SETTLED",
    Row.FAILED_FINAL_EXPIRED: "SETTLED",
    Row.FAILED_RETRYABLE_EXPIRED: "SETTLED",
    Row.PARKED: "SETTLED",
}
"""The state of the last attempt, as far as the record shows it."""


def parsed_id(text: str) -> bytes:
    """Return the id of a record from its hexadecimal form, with or without `id:`."""
    found = _hexadecimal(text)
    if found is None:
        raise ConfigurationError(f"{text[:80]!r} is not the id of a record", hint="an id has 64 hexadecimal digits")
    return bytes.fromhex(found[1])


async def key_detail(admin: Admin, id: str, *, values: bool) -> KeyDetail | None:
    """Return everything about one record that contains work, or None."""
    [answer] = await admin.store.read([parsed_id(id)], timeout=TIMEOUT)
    record, now = answer.record, answer.now
    if record is None or not admin.visible.includes(record.scope):
        return None
    journal = journal_or_none(record)
    life = await read_life(admin.store, record, now, journal)
    declared = await policy_text.declaration_of(admin.store, record.scope)
    return KeyDetail(
        row=key_row(record, now),
        now=time_of(now),
        explanation=explanation(record, now, life.audit),
        policy=[
            *policy_text.record_policy(record),
            *([] if declared is None else policy_text.declared_policy(declared)),
        ],
        timeline=life.timeline,
        gaps=life.gaps,
        audit=life.audit,
        actions=action_options(record, now),
        result=stored_result(record, admin.codec, admin.redaction, show=values),
        input=stored_input(record, admin.codec, admin.redaction, show=values),
        cycle=record.cycle,
        fingerprint=record.fingerprint.hex(),
        attempt_state=ATTEMPT_STATES.get(row_of(record, now), ""),
        saga=None if journal is None else saga_row(record, now, journal),
    )


def explanation(record: Record, now: int, audit: Sequence[AuditEntry], reasons: Reasons = DEFAULT_REASONS) -> list[str]:
    """Return what happened to the key, and what a delivery does now, in sentences."""
    return [
        *sentences(record, now, reasons),
        *saga_sentences(record),
        *(audit_text.sentence(entry, now) for entry in audit),
    ]


def action_options(record: Record, now: int) -> list[ActionOption]:
    """Return every action that fits this kind of record, and whether it is allowed now."""
    options = []
    for name, action in ACTIONS.items():
        if is_offered(action, record) and not (action.undo and journal_or_none(record) is None):
            reason = allows(action, record, now)
            options.append(ActionOption(name, reason is None, reason or ""))
    return options


async def parked(admin: Admin, wanted: ListingFilter, cursor: str | None, limit: int) -> Page[Evidence]:
    """Return a page of parked records with their evidence."""
    page = await listing.visible_page(admin, replace(wanted, states=(RecordState.PARKED,)), cursor=cursor, limit=limit)
    trails = await _audit_of_all(admin, page.records)
    rows = [
        Evidence(
            key_row(record, page.now),
            explanation(record, page.now, trails[record.id]),
            trails[record.id],
            action_options(record, page.now),
        )
        for record in page.records
    ]
    return Page(rows, listing.encode_cursor(page.cursor), time_of(page.now))


async def dead_letters(admin: Admin, cursor: str | None, limit: int) -> DeadLetters:
    """Return the parked messages, and how many messages were moved to a dead letter queue, by scope."""
    totals = await totals_of(admin, DAY)
    moved = {} if totals is None else {scope: totals.total("dead_lettered", scope) for scope in totals.scopes}
    wanted = ListingFilter(states=(RecordState.PARKED,))
    page = await listing.visible_page(admin, wanted, cursor=cursor, limit=limit)
    return DeadLetters(
        [key_row(one, page.now) for one in page.records if is_parked_message(one)],
        listing.encode_cursor(page.cursor),
        {scope: number for scope, number in moved.items() if number},
    )


async def _audit_of_all(admin: Admin, records: Sequence[Record]) -> dict[bytes, list[AuditEntry]]:
    """Return the latest entries of each record, in one read."""
    trails: dict[bytes, list[AuditEntry]] = {record.id: [] for record in records}
    if trails:
        wanted = AuditFilter(ids=tuple(trails))
        for entry in await admin.store.audit(wanted, limit=MAX_ENTRIES * len(trails), timeout=TIMEOUT):
            trails[entry.id].append(entry)
    return {id: entries[:MAX_ENTRIES] for id, entries in trails.items()}


async def find(admin: Admin, text: str, limit: int) -> list[KeyRow]:
    """Return the records that the text means, the exact matches first."""
    if not text:
        return []
    found = _hexadecimal(text)
    if found is not None:
        ids = [bytes.fromhex(found[1])]
    else:
        scopes = (parse_scope(scope) for scope in (await scopes_of(admin))[:MAX_SCOPES])
        ids = [make_key(scope, text).id for scope in scopes if scope is not None]
    answers = await admin.store.read(ids, timeout=TIMEOUT) if ids else []
    exact = [(one.record, one.now) for one in answers if one.record is not None]
    rows = [
        key_row(record, now)
        for record, now in exact
        if admin.visible.includes(record.scope) and record.state is not RecordState.FREE
    ]
    if rows or found is not None:
        return rows[:limit]
    page = await listing.visible_page(admin, ListingFilter(prefix=escape(text)), limit=limit)
    return [key_row(one, page.now) for one in page.records]
