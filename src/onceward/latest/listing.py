"""What a state shows to people: which entities there are, and what it knows of a message or an event."""

from __future__ import annotations

from typing import Any, Final

from onceward.engine.engine import Engine
from onceward.engine.entry import time_of
from onceward.errors import ConfigurationError
from onceward.protocol.capabilities import ListsLatest

from .event import Current, Known
from .flow import LatestFlow, current

PAGE: Final = 500
"""Entities in one call to the store, so that others pass in between."""


async def entities(engine: Engine, newest: LatestFlow, limit: int) -> list[Current[Any]]:
    """Those that have a value, at most `limit`, in the order of their names."""
    if limit < 1:
        raise ConfigurationError(f"limit is {limit}: there is nothing to show", hint="give a positive number")
    await engine.ready()
    store, scope = _shower(engine), newest.scope.text
    found: dict[bytes, Current[Any]] = {}
    cursor: bytes | None = None
    while True:
        size = min(PAGE, limit - len(found))
        page, cursor = await store.entities(scope, cursor=cursor, limit=size, timeout=newest.timeout)
        found |= {one.id: await current(engine, newest, one) for one in page}  # some stores tell one twice
        if cursor is None or len(found) >= limit:
            return sorted(found.values(), key=lambda one: one.entity)
        await engine.runtime.sleep(0)


async def known(engine: Engine, newest: LatestFlow, entity: Any, message_id: str | None, event_id: Any) -> Known | None:
    """What is remembered of this message, or of this event, of the entity."""
    mark = newest.mark(entity, message_id, event_id)
    await engine.ready()
    [found] = await _shower(engine).marks([mark], timeout=newest.timeout)
    if found is None:
        return None
    return Known(found.trace, time_of(found.created_at), time_of(found.expires_at))


def _shower(engine: Engine) -> ListsLatest:
    if not isinstance(engine.store, ListsLatest):
        raise ConfigurationError(
            f"{engine.store.name} cannot list entities and messages",
            hint="ask for one entity by its name: state.read(entity)",
        )
    return engine.store
