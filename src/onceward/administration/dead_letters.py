"""Messages that could not be processed, as far as the store knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceward.protocol.listing import ListingFilter
from onceward.protocol.message_note import is_parked_message
from onceward.protocol.record import RecordState

from . import figures, listing
from .model import DeadLetters
from .record_view import key_row

if TYPE_CHECKING:
    from .admin import Admin

DAY = 24  # hours


async def dead_letters(admin: Admin, cursor: str | None, limit: int) -> DeadLetters:
    """Return the parked messages, and the counts of those that were moved to a dead letter queue."""
    wanted = admin.visible.narrow(ListingFilter(states=(RecordState.PARKED,)))
    totals = await figures.totals_of(admin, DAY)
    moved = {} if totals is None else {scope: totals.total("dead_lettered", scope) for scope in totals.scopes}
    moved = {scope: number for scope, number in moved.items() if number}
    if wanted is None:
        return DeadLetters([], None, moved)
    page = await listing.newest(admin.store, wanted, cursor=cursor, limit=limit)
    parked = [key_row(one, page.now) for one in page.records if is_parked_message(one)]
    return DeadLetters(parked, None if page.cursor is None else listing.encode_cursor(page.cursor), moved)
