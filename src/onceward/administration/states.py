"""The latest states of entities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceward.protocol.latest import EntityState

from . import listing
from .model import EntityPage, EntityRow, StoredValue
from .times import time_of
from .totals import RULE_HOURS, totals_of
from .values import decoded

if TYPE_CHECKING:
    from .admin import Admin


async def state_scopes(admin: Admin) -> list[str]:
    """Return the scopes in which events were applied in the last weeks."""
    totals = await totals_of(admin, RULE_HOURS)
    if totals is None:
        return []
    return [scope for scope in totals.scopes if totals.total("applied", scope) or totals.total("stale", scope)]


async def entities(admin: Admin, scope: str, cursor: str | None, limit: int, *, values: bool) -> EntityPage:
    """Return a page of entities."""
    states = admin.store.latest
    if states is None or not admin.visible.includes(scope):
        return EntityPage([], None)
    after = None if cursor is None else listing.decode_cursor(cursor)
    found, following = await states.entities(scope, cursor=after, limit=limit, timeout=listing.TIMEOUT)
    rows = [_row(admin, one, values=values) for one in found]
    return EntityPage(rows, listing.encode_cursor(following))


def _row(admin: Admin, state: EntityState, *, values: bool) -> EntityRow:
    return EntityRow(
        state.id.hex(), state.scope, state.entity, time_of(state.updated_at), _value(admin, state, show=values)
    )


def _value(admin: Admin, state: EntityState, *, show: bool) -> StoredValue:
    if state.value is None:
        return StoredValue(0, problem="the entity was deleted")
    return decoded(state.value, admin.codec, admin.redaction, (state.id, 0), show=show)
