"""`once.state(…)`: the newest state of entities, in both colours. One line a method; the flows are in `latest.flow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from onceward.errors import ConfigurationError
from onceward.keys.key import Scope
from onceward.protocol.duration import Duration, format_duration, microseconds
from onceward.protocol.latest import Retention
from onceward.protocol.ordering import AnyOrdering
from onceward.protocol.outcome import Outcome
from onceward.runtime.bridge import run

from . import flow as flows
from . import listing as shown
from .event import Current, Gone, Known, StateEvent, deleted
from .flow import LatestFlow

if TYPE_CHECKING:
    from onceward.client.base import BaseClient

T = TypeVar("T")

WINDOW: Final = "7d"
"""Longer than brokers keep a message that nobody acknowledged: Pub/Sub 7 days at most by default."""

KEEP_DELETED: Final = "30d"
MAX_CLOCK_SKEW: Final = "5m"
"""More than clocks that are kept in step ever differ."""


class Kept(Generic[T]):
    """What a state knows, in both colours."""

    def __init__(
        self,
        client: BaseClient,
        name: str,
        type: Any = Any,
        *,
        window: Duration = WINDOW,
        keep_deleted: Duration = KEEP_DELETED,
        max_clock_skew: Duration | None = MAX_CLOCK_SKEW,
    ) -> None:
        keep = Retention(microseconds(window, "window"), microseconds(keep_deleted, "keep_deleted"))
        if keep.deleted < keep.marks:
            raise ConfigurationError(
                f"keep_deleted ({format_duration(keep.deleted)}) is shorter than window ({format_duration(keep.marks)}):"
                " a message that is delivered again in between would bring the deleted entity back",
                hint="keep deleted entities at least as long as the messages are known",
            )
        self.name = name
        self.client = client
        self.engine = client.engine
        self.flow = LatestFlow(
            client.state_scope(name),
            client.codec(type),
            keep,
            None if max_clock_skew is None else microseconds(max_clock_skew, "max_clock_skew"),
            client.policy.call_timeout,
        )

    @property
    def scope(self) -> Scope:
        """Whose entities these are: application, name and tenant."""
        return self.flow.scope

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.scope.text} on {self.engine.store.name}>"


class LatestState(Kept[T]):
    """The newest value of each entity, whatever the order in which events arrive, and however often."""

    def apply(
        self, entity: Any, ordering: AnyOrdering, value: T, *, event_id: Any = None, payload: Any = None
    ) -> Outcome[T]:
        """The entity has this value since then, unless a newer event is known: `Executed`, `Replayed` or `Stale`.

        `payload` is what the same message, or event, must say again, if that is not all of the value.
        """
        return run(flows.apply(self.engine, self.flow, StateEvent(entity, ordering, value, event_id, payload)))

    def delete(self, entity: Any, ordering: AnyOrdering, *, event_id: Any = None) -> Outcome[None]:
        """The entity is gone since then, unless a newer event is known. Older ones do not bring it back."""
        return run(flows.apply(self.engine, self.flow, StateEvent(entity, ordering, deleted, event_id)))

    def apply_many(self, events: Iterable[StateEvent[T] | tuple[Any, ...]]) -> list[Outcome[T]]:
        """Thousands in one call. Outcomes in input order; one that cannot be read is `Failed`, and stops no other."""
        return run(flows.apply_all(self.engine, self.flow, events))

    def apply_in(
        self,
        connection: Any,
        entity: Any,
        ordering: AnyOrdering,
        value: T | Gone,
        *,
        event_id: Any = None,
        payload: Any = None,
    ) -> Outcome[T]:
        """As `apply`, in your own transaction: write your own row there if the outcome is `applied`."""
        return run(
            flows.apply(self.engine, self.flow, StateEvent(entity, ordering, value, event_id, payload), connection)
        )

    def apply_many_in(self, connection: Any, events: Iterable[StateEvent[T] | tuple[Any, ...]]) -> list[Outcome[T]]:
        """As `apply_many`, in your own transaction."""
        return run(flows.apply_all(self.engine, self.flow, events, connection))

    def get(self, entity: Any) -> T | None:
        """The newest value; None if there is none, or the entity was deleted."""
        current: Current[T] | None = run(flows.read(self.engine, self.flow, entity))
        return None if current is None else current.value

    def read(self, entity: Any) -> Current[T] | None:
        """The newest value with its ordering; of a deleted entity what is left of it; None if nothing is known."""
        return run(flows.read(self.engine, self.flow, entity))

    def entities(self, limit: int = 1_000) -> list[Current[T]]:
        """Those that have a value, at most so many: for a page or a person."""
        return run(shown.entities(self.engine, self.flow, limit))

    def known(self, entity: Any, *, message_id: str | None = None, event_id: Any = None) -> Known | None:
        """What is remembered of a message, or of an event, of this entity; None: nothing, or not any more."""
        return run(shown.known(self.engine, self.flow, entity, message_id, event_id))


class AsyncLatestState(Kept[T]):
    """The newest value of each entity, whatever the order in which events arrive, and however often."""

    async def apply(
        self, entity: Any, ordering: AnyOrdering, value: T, *, event_id: Any = None, payload: Any = None
    ) -> Outcome[T]:
        """The entity has this value since then, unless a newer event is known: `Executed`, `Replayed` or `Stale`.

        `payload` is what the same message, or event, must say again, if that is not all of the value.
        """
        return await flows.apply(self.engine, self.flow, StateEvent(entity, ordering, value, event_id, payload))

    async def delete(self, entity: Any, ordering: AnyOrdering, *, event_id: Any = None) -> Outcome[None]:
        """The entity is gone since then, unless a newer event is known. Older ones do not bring it back."""
        return await flows.apply(self.engine, self.flow, StateEvent(entity, ordering, deleted, event_id))

    async def apply_many(self, events: Iterable[StateEvent[T] | tuple[Any, ...]]) -> list[Outcome[T]]:
        """Thousands in one call. Outcomes in input order; one that cannot be read is `Failed`, and stops no other."""
        return await flows.apply_all(self.engine, self.flow, events)

    async def apply_in(
        self,
        connection: Any,
        entity: Any,
        ordering: AnyOrdering,
        value: T | Gone,
        *,
        event_id: Any = None,
        payload: Any = None,
    ) -> Outcome[T]:
        """As `apply`, in your own transaction: write your own row there if the outcome is `applied`."""
        return await flows.apply(
            self.engine, self.flow, StateEvent(entity, ordering, value, event_id, payload), connection
        )

    async def apply_many_in(
        self, connection: Any, events: Iterable[StateEvent[T] | tuple[Any, ...]]
    ) -> list[Outcome[T]]:
        """As `apply_many`, in your own transaction."""
        return await flows.apply_all(self.engine, self.flow, events, connection)

    async def get(self, entity: Any) -> T | None:
        """The newest value; None if there is none, or the entity was deleted."""
        current: Current[T] | None = await flows.read(self.engine, self.flow, entity)
        return None if current is None else current.value

    async def read(self, entity: Any) -> Current[T] | None:
        """The newest value with its ordering; of a deleted entity what is left of it; None if nothing is known."""
        return await flows.read(self.engine, self.flow, entity)

    async def entities(self, limit: int = 1_000) -> list[Current[T]]:
        """Those that have a value, at most so many: for a page or a person."""
        return await shown.entities(self.engine, self.flow, limit)

    async def known(self, entity: Any, *, message_id: str | None = None, event_id: Any = None) -> Known | None:
        """What is remembered of a message, or of an event, of this entity; None: nothing, or not any more."""
        return await shown.known(self.engine, self.flow, entity, message_id, event_id)
