"""List the entities of a state, and look up a message or an event: for display and debugging."""

from __future__ import annotations

from typing import Any, Final

from onceward.engine.engine import Engine
from onceward.engine.entry import time_of
from onceward.errors import ConfigurationError
from onceward.protocol.capabilities import LatestStates

from .event import Current, Known
from .flow import StateDefinition, current

PAGE: Final = 500
"""Entities in one call to the store, so that other callers get a turn in between."""


async def entities(engine: Engine, definition: StateDefinition, limit: int) -> list[Current[Any]]:
    """Return the entities that have a value, up to `limit`, ordered by name."""
    if limit < 1:
        raise ConfigurationError(f"limit is {limit}, and must be at least 1", hint="pass a positive number")
    await engine.ready()
    store, scope = _listing_store(engine), definition.scope.text
    found: dict[bytes, Current[Any]] = {}
    cursor: bytes | None = None
    while True:
        size = min(PAGE, limit - len(found))
        page, cursor = await store.entities(scope, cursor=cursor, limit=size, timeout=definition.timeout)
        found |= {one.id: await current(engine, definition, one) for one in page}  # some stores return an entity twice
        if cursor is None or len(found) >= limit:
            return sorted(found.values(), key=lambda one: one.entity)
        await engine.runtime.sleep(0)


async def known(
    engine: Engine, definition: StateDefinition, entity: Any, message_id: str | None, event_id: Any
) -> Known | None:
    """Return what is known about this message or event of the entity, or None."""
    mark = definition.mark(entity, message_id, event_id)
    await engine.ready()
    [found] = await _listing_store(engine).marks([mark], timeout=definition.timeout)
    if found is None:
        return None
    return Known(found.trace, time_of(found.created_at), time_of(found.expires_at))


def _listing_store(engine: Engine) -> LatestStates:
    states = engine.store.latest
    if states is None:
        raise ConfigurationError(
            f"{engine.store.name} cannot list entities and messages",
            hint="read one entity by its name: state.read(entity)",
        )
    return states
