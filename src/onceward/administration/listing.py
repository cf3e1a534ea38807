"""List records, newest first, page by page, on every store.

Stores with the capability `listing` use an index. For the others, all records are scanned: that is fine for some
hundred thousand records, and takes seconds for millions.
"""

from __future__ import annotations

import base64
import heapq
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from onceward.errors import ConfigurationError
from onceward.observe.record_figures import scan_pages
from onceward.protocol.listing import UNFINISHED, ListingFilter, ListingPage
from onceward.protocol.ports import Filter, Page, Store
from onceward.protocol.record import Record, RecordState

from .model import Capped

if TYPE_CHECKING:
    from .admin import Admin

TIMEOUT: Final = 30.0
MAX_PAGE: Final = 5_000
MAX_CURSOR: Final = 1000  # characters
ID_DIGITS: Final = 64  # hexadecimal

_position = msgspec.msgpack.Decoder(tuple[int, bytes]).decode


async def newest(
    store: Store, wanted: ListingFilter, *, cursor: str | None = None, limit: int, timeout: float = TIMEOUT
) -> ListingPage:
    """Return a page of records without their results, newest first."""
    if len(wanted.id) == ID_DIGITS:  # a whole id names one record, however old it is
        return await _one(store, wanted, timeout)
    after = None if cursor is None else decode_cursor(cursor)
    if store.listing is not None:
        return await store.listing.newest(wanted, cursor=after, limit=limit, timeout=timeout)
    return await _newest_by_scan(store, wanted, after, limit, timeout)


async def _one(store: Store, wanted: ListingFilter, timeout: float) -> ListingPage:
    [answer] = await store.read([bytes.fromhex(wanted.id)], timeout=timeout)
    found = [] if answer.record is None or not wanted.matches(answer.record) else [replace(answer.record, result=None)]
    return ListingPage(found, None, answer.now)


async def _newest_by_scan(
    store: Store, wanted: ListingFilter, cursor: bytes | None, limit: int, timeout: float
) -> ListingPage:
    """Scan all records, and keep the first ones after the cursor."""
    try:
        after = None if cursor is None else _position(cursor)
    except msgspec.MsgspecError as error:
        raise invalid_cursor() from error
    best: list[Record] = []
    unreadable: list[str] = []
    now = 0
    async for page in _scan(store, wanted, timeout):
        now = page.now
        unreadable += page.unreadable
        chosen = (one for one in page.records if wanted.matches(one) and (after is None or _sort_key(one) > after))
        unique = {one.id: one for one in (*best, *(replace(one, result=None) for one in chosen))}
        best = heapq.nsmallest(limit + 1, unique.values(), key=_sort_key)
    following = msgspec.msgpack.encode(_sort_key(best[limit - 1])) if len(best) > limit else None
    return ListingPage(best[:limit], following, now, unreadable=tuple(unreadable))


def _scan(store: Store, wanted: ListingFilter, timeout: float) -> AsyncIterator[Page]:
    only = wanted.scopes[0] if len(wanted.scopes) == 1 and "@" in wanted.scopes[0] else None
    return scan_pages(store, Filter(states=wanted.states, scope=only, prefix=wanted.prefix or None), timeout)


def _sort_key(record: Record) -> tuple[int, bytes]:
    return -record.token, record.id


async def visible_page(admin: Admin, wanted: ListingFilter, *, cursor: str | None = None, limit: int) -> ListingPage:
    """Return a page of the matching records that the operator may see. It is empty if there are none."""
    narrowed = admin.visible.narrow(checked(wanted))
    if narrowed is None:
        [answer] = await admin.store.read([bytes(32)], timeout=TIMEOUT)
        return ListingPage([], None, answer.now)
    return await newest(admin.store, narrowed, cursor=cursor, limit=limit)


async def all_visible(admin: Admin, wanted: ListingFilter, *, limit: int) -> tuple[list[Record], int, bool]:
    """Return up to `limit` records, the store's time, and whether there are more. Read as many pages as needed."""
    found: list[Record] = []
    cursor: str | None = None
    while True:
        page = await visible_page(admin, wanted, cursor=cursor, limit=min(MAX_PAGE, limit - len(found)))
        found += page.records
        if page.cursor is None or len(found) >= limit:
            return found, page.now, page.cursor is not None
        cursor = encode_cursor(page.cursor)


async def count_unfinished(store: Store, limit: int, timeout: float = TIMEOUT) -> dict[RecordState, Capped]:
    """Return how many records are in each unfinished state. Counting stops at `limit`."""
    if store.listing is not None:
        counts = await store.listing.count_unfinished(limit + 1, timeout=timeout)
    else:
        counts = dict.fromkeys(UNFINISHED, 0)
        for (_, state), number in (await store.counts(timeout=timeout)).items():
            if state in counts:
                counts[state] += number
    return {state: Capped(min(counts.get(state, 0), limit), counts.get(state, 0) > limit) for state in UNFINISHED}


async def oldest_pending(store: Store, wanted: ListingFilter, timeout: float = TIMEOUT) -> tuple[Record, int] | None:
    """Return the PENDING record that was claimed first, and the store's time."""
    if store.listing is not None:
        page = await store.listing.oldest_pending(wanted, limit=1, timeout=timeout)
        return (page.records[0], page.now) if page.records else None
    found: tuple[Record, int] | None = None
    async for part in _scan(store, replace(wanted, states=(RecordState.PENDING,)), timeout):
        for record in part.records:
            if wanted.matches_scope(record.scope) and (found is None or record.token < found[0].token):
                found = replace(record, result=None), part.now
    return found


def encode_cursor(cursor: bytes | None) -> str | None:
    """Return the cursor as text, for URLs; None on the last page."""
    return None if cursor is None else base64.urlsafe_b64encode(cursor).decode("ascii").rstrip("=")


def decode_cursor(text: str) -> bytes:
    """Return the cursor that `encode_cursor` encoded as text."""
    text = text[:MAX_CURSOR]
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise invalid_cursor() from error


def invalid_cursor() -> ConfigurationError:
    return ConfigurationError("this is not a cursor", hint="use the cursor of the previous page, with the same filters")


def checked(wanted: ListingFilter) -> ListingFilter:
    """Return the filter if it is valid; raise ConfigurationError if its id is not hexadecimal."""
    if wanted.id and (len(wanted.id) > ID_DIGITS or set(wanted.id.lower()) - set("0123456789abcdef")):
        raise ConfigurationError(f"{wanted.id[:80]!r} is not the start of an id", hint="up to 64 hexadecimal digits")
    return wanted
