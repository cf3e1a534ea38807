"""Find the records that a command-line argument refers to."""

from __future__ import annotations

import base64
import heapq
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from onceward.keys.key import make_key, parse_scope
from onceward.keys.readable import MAX_TEXT, escape
from onceward.protocol.hints import commands
from onceward.protocol.ports import SORT_KEYS, Filter, Page, SortOrder, Store
from onceward.protocol.record import Record, RecordState
from onceward.runtime.threads import run

from .display import cut
from .exit_codes import Exit
from .open_store import SEARCH_TIMEOUT, TIMEOUT
from .program import CommandError, print_error

PAGE_SIZE = 200  # records per page: each may contain a result of a megabyte
MAX_MATCHES = 20
WORK_STATES = tuple(state for state in RecordState if state is not RecordState.FREE)
"""All states except FREE: free records contain no work, only a token."""

_ID = re.compile(r"id:([0-9a-fA-F]{4,64})")
_CUT_SUFFIX_LENGTH = 9  # a cut key ends in `…` and eight digits of its id
_FULL_ID_DIGITS = 64


def iter_records(store: Store, wanted: Filter) -> Iterator[tuple[Record, int]]:
    """Iterate over all matching records, page by page, with the store's time."""
    cursor = None
    while True:
        page = run(store.scan(wanted, cursor=cursor, limit=PAGE_SIZE, timeout=SEARCH_TIMEOUT))
        _warn_unreadable(page)
        for record in page.records:
            yield record, page.now
        cursor = page.cursor
        if cursor is None:
            return


def first_records(
    store: Store,
    wanted: Filter,
    order: SortOrder,
    limit: int,
    *,
    claimed_ago: int | None = None,
    after: Position | None = None,
) -> list[tuple[Record, int]]:
    """Return the first records in this order. If the store cannot sort, scan all records and keep the first.

    `claimed_ago`: only records that were claimed longer ago (in µs). `after`: only records after this position. Stores
    cannot filter by either, so all records are scanned.
    """
    if claimed_ago is None and after is None and store.sorting is not None:
        page = run(store.sorting.first(wanted, order=order, limit=limit, timeout=SEARCH_TIMEOUT))
        _warn_unreadable(page)
        return [(record, page.now) for record in page.records]
    sort_key = SORT_KEYS[order]
    chosen = (
        (record, now)
        for record, now in iter_records(store, wanted)
        if (claimed_ago is None or record.claimed_at < now - claimed_ago)
        and (after is None or sort_key(record) > after)
    )
    return heapq.nsmallest(limit, chosen, key=lambda one: sort_key(one[0]))


Position = tuple[Any, bytes]
"""The sort key of a record."""


def cursor_of(record: Record, order: SortOrder) -> str:
    """Return the position of a record as text, to be passed to --after."""
    value, id = SORT_KEYS[order](record)
    return base64.urlsafe_b64encode(json.dumps([order.value, value, id.hex()]).encode()).decode()


def parse_cursor(text: str, order: SortOrder) -> Position:
    """Parse a cursor. It must come from a listing in the same order."""
    try:
        of, value, id = json.loads(base64.urlsafe_b64decode(text))
        of = SortOrder(of)
        position = (str(value) if of is SortOrder.KEY else int(value)), bytes.fromhex(id)
    except (ValueError, TypeError, RecursionError):
        hint = "use `cursor` of the last record in the output of onceward ls -o json"
        raise CommandError(f"{cut(text, 80)!r} is not a cursor → {hint}", Exit.USAGE) from None
    if of is not order:
        raise CommandError(f"this cursor is for --sort {of} → pass --sort {of}", Exit.USAGE)
    return position


def _warn_unreadable(page: Page) -> None:
    for key in page.unreadable:
        print_error(f"the record of {cut(key, 80)} is invalid, and was skipped → was it edited manually?")


class KeyPattern(NamedTuple):
    """A key or id as typed, split into what the store can search for and what must be compared here.

    A key of over 200 characters is displayed cut, and several keys may be cut to the same text, so its hash decides.
    Text that looks like an id may also be a key.
    """

    typed: str
    id: bytes | None
    key: str | None
    prefix: str
    is_id: bool

    @classmethod
    def of(cls, typed: str) -> KeyPattern:
        hexadecimal = _ID.fullmatch(typed)
        if hexadecimal:
            digits = hexadecimal[1].lower()
            return cls(
                typed, bytes.fromhex(digits) if len(digits) == _FULL_ID_DIGITS else None, None, digits, is_id=True
            )
        text = escape(typed)
        return cls(
            typed, None, None if len(text) > MAX_TEXT else text, text[: MAX_TEXT - _CUT_SUFFIX_LENGTH], is_id=False
        )

    @property
    def is_exact(self) -> bool:
        """Whether the store can search for exactly this record."""
        return self.id is not None or self.key is not None

    def matches(self, id: bytes, key: str, scope: str) -> bool:
        if self.is_id:
            return id.hex().startswith(self.prefix) or key == self.typed
        if self.key is not None:
            return key == self.key
        return self.has_prefix(key) and id == _id_of(self.typed, scope)

    def has_prefix(self, key: str) -> bool:
        """Return whether a displayed, cut key has the same beginning as the typed key."""
        return self.key is None and not self.is_id and key.startswith(self.prefix)

    def not_found_hint(self, store: Store, scope: str | None) -> str:
        """Return a hint for the error that no record was found."""
        if self.typed.startswith("id:") and not self.is_id:
            return "; an id is id: followed by 4 to 64 hexadecimal digits"
        if self.key is not None or self.is_id:
            return ""
        like = [
            record
            for record, _ in iter_records(store, Filter(states=WORK_STATES, scope=scope))
            if self.has_prefix(record.key)
        ]
        listed = ", ".join(f"id:{record.id.hex()[:12]}" for record in like[:MAX_MATCHES])
        return f"; keys of over {MAX_TEXT} characters are displayed cut: if you mean {listed}, use that" if like else ""


def _id_of(key: str, scope: str) -> bytes | None:
    """Return the id of this key in this scope."""
    known = parse_scope(scope)
    return None if known is None else make_key(known, key).id


def find(store: Store, key: str, scope: str | None) -> list[tuple[Record, int]]:
    """Return records whose displayed key is this text, or whose id begins with it; at most MAX_MATCHES + 1."""
    pattern = KeyPattern.of(key)
    if pattern.id is not None:
        answer = run(store.read([pattern.id], timeout=TIMEOUT))[0]
        record = answer.record
        found_work = record is not None and record.state in WORK_STATES and scope in (None, record.scope)
        return [(record, answer.now)] if record is not None and found_work else []
    found = []
    for record, now in iter_records(store, Filter(states=WORK_STATES, scope=scope, key=pattern.key)):
        if pattern.matches(record.id, record.key, record.scope):
            found.append((record, now))
            if len(found) > MAX_MATCHES:
                break
    return found


def find_one(store: Store, key: str, scope: str | None) -> tuple[Record, int]:
    """Return the only record that matches. If several match, the error lists them."""
    found = find(store, key, scope)
    if not found:
        where = f" in scope {scope}" if scope else ""
        why = KeyPattern.of(key).not_found_hint(store, scope)
        raise CommandError(
            f"no record for {cut(key, 80)!r}{where} in {store.name}{why}; see {commands.program} ls", Exit.ABSENT
        )
    if len(found) > 1:
        listed = "; ".join(f"id:{record.id.hex()[:12]} in {record.scope}" for record, _ in found[:MAX_MATCHES])
        more = " and more" if len(found) > MAX_MATCHES else ""
        scopes = {record.scope for record, _ in found}
        which = "--scope with one of these scopes" if len(scopes) > 1 else "its id instead of the key"
        raise CommandError(f"several records match {cut(key, 80)!r}: {listed}{more} → use {which}", Exit.SEVERAL)
    return found[0]
