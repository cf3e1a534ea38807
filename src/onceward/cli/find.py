"""From what a person types to the record that is meant."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from typing import NamedTuple

from onceward.keys.key import make_key, scope_of
from onceward.keys.readable import MAX_TEXT, escape
from onceward.protocol.capabilities import SortsRecords
from onceward.protocol.ports import SORT_KEYS, Filter, Page, SortOrder, Store
from onceward.protocol.record import Record, RecordState
from onceward.runtime.bridge import run

from .display import cut
from .exit_codes import Exit
from .open_store import SEARCH, TIMEOUT
from .program import CommandError, complain

PAGE = 200  # records at a time: each may carry a result of a megabyte
MOST_MATCHES = 20
WORK = tuple(state for state in RecordState if state is not RecordState.FREE)
"""FREE records hold no work: they only remember a token."""

_ID = re.compile(r"id:([0-9a-fA-F]{4,64})")
_MARK_AND_DOTS = 9  # what a text that was cut ends in: `…` and eight digits of its id
_WHOLE_ID = 64


def each(store: Store, wanted: Filter) -> Iterator[tuple[Record, int]]:
    """Every record that is wanted, page by page, with the store's time."""
    cursor = None
    while True:
        page = run(store.scan(wanted, cursor=cursor, limit=PAGE, timeout=SEARCH))
        _tell_of_unreadable(page)
        for record in page.records:
            yield record, page.now
        cursor = page.cursor
        if cursor is None:
            return


def first(
    store: Store, wanted: Filter, order: SortOrder, limit: int, *, claimed_ago: int | None = None
) -> list[tuple[Record, int]]:
    """The first records of an order. A store that cannot sort hands all of them out, and only those are kept.

    `claimed_ago`: only those that were claimed longer ago (µs), which no store looks for.
    """
    if claimed_ago is not None:
        old = (one for one in each(store, wanted) if one[0].claimed_at < one[1] - claimed_ago)
        return heapq.nsmallest(limit, old, key=lambda one: SORT_KEYS[order](one[0]))
    if isinstance(store, SortsRecords):
        page = run(store.first(wanted, order=order, limit=limit, timeout=SEARCH))
        _tell_of_unreadable(page)
        return [(record, page.now) for record in page.records]
    return heapq.nsmallest(limit, each(store, wanted), key=lambda one: SORT_KEYS[order](one[0]))


def _tell_of_unreadable(page: Page) -> None:
    for key in page.unreadable:
        complain(f"the record of {cut(key, 80)} holds what no Onceward writes; it is left out → was it edited by hand?")


class Pattern(NamedTuple):
    """What a person typed, as far as a store can search for it, and the rest.

    A key of over 200 characters is shown cut, and several may be cut to the same begin: it is meant only if its hash
    says so. What looks like an id may be a key as well.
    """

    typed: str
    id: bytes | None
    key: str | None
    start: str
    of_id: bool

    @classmethod
    def of(cls, typed: str) -> Pattern:
        hexadecimal = _ID.fullmatch(typed)
        if hexadecimal:
            digits = hexadecimal[1].lower()
            return cls(typed, bytes.fromhex(digits) if len(digits) == _WHOLE_ID else None, None, digits, of_id=True)
        text = escape(typed)
        return cls(typed, None, None if len(text) > MAX_TEXT else text, text[: MAX_TEXT - _MARK_AND_DOTS], of_id=False)

    @property
    def is_exact(self) -> bool:
        """Whether the store finds just what is meant."""
        return self.id is not None or self.key is not None

    def fits(self, id: bytes, key: str, scope: str) -> bool:
        if self.of_id:
            return id.hex().startswith(self.start) or key == self.typed
        if self.key is not None:
            return key == self.key
        return self.is_like(key) and id == _id_of(self.typed, scope)

    def is_like(self, key: str) -> bool:
        """Whether it is shown as what was typed would be, as far as that was not cut."""
        return self.key is None and not self.of_id and key.startswith(self.start)

    def why_not(self, store: Store, scope: str | None) -> str:
        """What else may help whoever meant a record that was not found."""
        if self.typed.startswith("id:") and not self.of_id:
            return "; an id is written id: and 4 to 64 hexadecimal digits"
        if self.key is not None or self.of_id:
            return ""
        like = [record for record, _ in each(store, Filter(states=WORK, scope=scope)) if self.is_like(record.key)]
        listed = ", ".join(f"id:{record.id.hex()[:12]}" for record in like[:MOST_MATCHES])
        return f"; keys of over {MAX_TEXT} characters are shown cut: if {listed} is meant, give that" if like else ""


def _id_of(key: str, scope: str) -> bytes | None:
    """The id of a key that was given as this text, in this scope."""
    known = scope_of(scope)
    return None if known is None else make_key(known, key).id


def find(store: Store, key: str, scope: str | None) -> list[tuple[Record, int]]:
    """Records whose readable key is this text, or whose id begins like this; a few at most."""
    pattern = Pattern.of(key)
    if pattern.id is not None:
        answer = run(store.read([pattern.id], timeout=TIMEOUT))[0]
        record = answer.record
        fits = record is not None and record.state in WORK and scope in (None, record.scope)
        return [(record, answer.now)] if record is not None and fits else []
    found = []
    for record, now in each(store, Filter(states=WORK, scope=scope, key=pattern.key)):
        if pattern.fits(record.id, record.key, record.scope):
            found.append((record, now))
            if len(found) > MOST_MATCHES:
                break
    return found


def the_one(store: Store, key: str, scope: str | None) -> tuple[Record, int]:
    """The only record that matches; several are listed, so that the next call can name one."""
    found = find(store, key, scope)
    if not found:
        where = f" in scope {scope}" if scope else ""
        why = Pattern.of(key).why_not(store, scope)
        raise CommandError(f"no record for {cut(key, 80)!r}{where} in {store.name}{why}; see onceward ls", Exit.ABSENT)
    if len(found) > 1:
        listed = "; ".join(f"id:{record.id.hex()[:12]} in {record.scope}" for record, _ in found[:MOST_MATCHES])
        more = " and more" if len(found) > MOST_MATCHES else ""
        scopes = {record.scope for record, _ in found}
        which = "--scope with one of these scopes" if len(scopes) > 1 else "its id instead of the key"
        raise CommandError(f"several records match {cut(key, 80)!r}: {listed}{more} → give {which}", Exit.SEVERAL)
    return found[0]
