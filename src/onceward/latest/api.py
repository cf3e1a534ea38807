"""The public API of `once.state(…)`, sync and async: the latest state of entities. `latest.flow` does the work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from onceward.errors import ConfigurationError
from onceward.keys.key import Scope
from onceward.protocol.duration import Duration, format_duration, microseconds
from onceward.protocol.latest import Retention
from onceward.protocol.ordering import AnyOrdering
from onceward.protocol.outcome import Outcome
from onceward.runtime.threads import run

from . import flow as flows
from . import listing
from .event import Current, DeletedValue, Known, StateEvent, deleted
from .flow import StateDefinition

if TYPE_CHECKING:
    from onceward.client.base import BaseClient

T = TypeVar("T")

WINDOW: Final = "7d"
"""As long as brokers keep unacknowledged messages: Pub/Sub keeps them for 7 days by default."""

KEEP_DELETED: Final = "30d"
MAX_CLOCK_SKEW: Final = "5m"
"""Synchronised clocks never differ by more than that."""


class BaseLatestState(Generic[T]):
    """What the sync and the async state share."""

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
        retention = Retention(microseconds(window, "window"), microseconds(keep_deleted, "keep_deleted"))
        if retention.deleted < retention.marks:
            raise ConfigurationError(
                f"keep_deleted ({format_duration(retention.deleted)}) is shorter than window"
                f" ({format_duration(retention.marks)}):"
                " a message that is delivered again in between would restore the deleted entity",
                hint="set keep_deleted to at least window",
            )
        self.name = name
        self.client = client
        self.engine = client.engine
        self.definition = StateDefinition(
            client.state_scope(name),
            client.codec(type),
            retention,
            None if max_clock_skew is None else microseconds(max_clock_skew, "max_clock_skew"),
            client.policy.call_timeout,
        )

    @property
    def scope(self) -> Scope:
        """The scope of the entities: application, name and tenant."""
        return self.definition.scope

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.scope.text} on {self.engine.store.name}>"


class LatestState(BaseLatestState[T]):
    """The latest value of each entity, in whatever order and however often its events arrive.

    In all methods, `entity` is any value that identifies the entity, as for a key. `ordering` is an `Ordering`, a time
    or a tuple: the event with the highest one wins. Create it with `once.state(name)`. If the store does not answer,
    methods raise `StoreUnavailable`.
    """

    def apply(
        self, entity: Any, ordering: AnyOrdering, value: T, *, event_id: Any = None, payload: Any = None
    ) -> Outcome[T]:
        """Set the value of the entity, unless a later event was applied.

        Args:
            entity: What the event is about.
            ordering: The position of the event among those of its entity.
            value: The new value.
            event_id: Identifies the event, whichever message delivers it. The same id with other content is a
                `Mismatch`.
            payload: What identifies the content, if the value also holds data that differs between deliveries. It is
                compared instead of the value and the times.

        Returns:
            `Executed` if the value was set, `Replayed` for a duplicate, `Stale` if a later event was applied before,
            `Mismatch`, or `Parked` if the event is too far in the future.
        """
        return run(flows.apply(self.engine, self.definition, StateEvent(entity, ordering, value, event_id, payload)))

    def delete(self, entity: Any, ordering: AnyOrdering, *, event_id: Any = None) -> Outcome[None]:
        """Delete the entity, unless a later event was applied. Earlier events do not restore it.

        `entity`, `ordering` and `event_id` are those of `apply`. Return the outcome, as `apply` does.
        """
        return run(flows.apply(self.engine, self.definition, StateEvent(entity, ordering, deleted, event_id)))

    def apply_many(self, events: Iterable[StateEvent[T] | tuple[Any, ...]]) -> list[Outcome[T]]:
        """Apply thousands of events in one call.

        Args:
            events: `StateEvent` objects, or tuples of entity, ordering, value and, if you like, event id.

        Returns:
            The outcomes, in input order. An invalid event is `Failed`, and does not affect the others.
        """
        return run(flows.apply_all(self.engine, self.definition, events))

    def apply_in(
        self,
        connection: Any,
        entity: Any,
        ordering: AnyOrdering,
        value: T | DeletedValue,
        *,
        event_id: Any = None,
        payload: Any = None,
    ) -> Outcome[T]:
        """Apply an event in your own transaction. Write your own row there if the outcome is `applied`.

        Args:
            connection: An open connection or session to the database of the records. You commit it.
            entity: What the event is about.
            ordering: The position of the event among those of its entity.
            value: The new value, or `deleted` to delete the entity.
            event_id: Identifies the event, as for `apply`.
            payload: What identifies the content, as for `apply`.

        Returns:
            The outcome, as from `apply`. It holds only if you commit.
        """
        return run(
            flows.apply(
                self.engine, self.definition, StateEvent(entity, ordering, value, event_id, payload), connection
            )
        )

    def apply_many_in(self, connection: Any, events: Iterable[StateEvent[T] | tuple[Any, ...]]) -> list[Outcome[T]]:
        """Apply many events in your own transaction.

        Args:
            connection: An open connection or session to the database of the records. You commit it.
            events: As for `apply_many`.

        Returns:
            The outcomes, in input order.
        """
        return run(flows.apply_all(self.engine, self.definition, events, connection))

    def get(self, entity: Any) -> T | None:
        """Return the latest value; None if there is none, or the entity was deleted."""
        current: Current[T] | None = run(flows.read(self.engine, self.definition, entity))
        return None if current is None else current.value

    def read(self, entity: Any) -> Current[T] | None:
        """Return the latest value with its ordering, also of a deleted entity; None if nothing is known."""
        return run(flows.read(self.engine, self.definition, entity))

    def entities(self, limit: int = 1_000) -> list[Current[T]]:
        """Return the entities that have a value, up to `limit`: for display and debugging."""
        return run(listing.entities(self.engine, self.definition, limit))

    def known(self, entity: Any, *, message_id: str | None = None, event_id: Any = None) -> Known | None:
        """Return what is stored about a message or an event of this entity, or None if it is unknown or expired.

        Pass the `message_id` of the transport, or the `event_id` that was given to `apply`.
        """
        return run(listing.known(self.engine, self.definition, entity, message_id, event_id))


class AsyncLatestState(BaseLatestState[T]):
    """The latest value of each entity, in whatever order and however often its events arrive.

    In all methods, `entity` is any value that identifies the entity, as for a key. `ordering` is an `Ordering`, a time
    or a tuple: the event with the highest one wins. Create it with `once.state(name)` of an `AsyncOnce`. If the store
    does not answer, methods raise `StoreUnavailable`.
    """

    async def apply(
        self, entity: Any, ordering: AnyOrdering, value: T, *, event_id: Any = None, payload: Any = None
    ) -> Outcome[T]:
        """Set the value of the entity, unless a later event was applied.

        Args:
            entity: What the event is about.
            ordering: The position of the event among those of its entity.
            value: The new value.
            event_id: Identifies the event, whichever message delivers it. The same id with other content is a
                `Mismatch`.
            payload: What identifies the content, if the value also holds data that differs between deliveries. It is
                compared instead of the value and the times.

        Returns:
            `Executed` if the value was set, `Replayed` for a duplicate, `Stale` if a later event was applied before,
            `Mismatch`, or `Parked` if the event is too far in the future.
        """
        return await flows.apply(self.engine, self.definition, StateEvent(entity, ordering, value, event_id, payload))

    async def delete(self, entity: Any, ordering: AnyOrdering, *, event_id: Any = None) -> Outcome[None]:
        """Delete the entity, unless a later event was applied. Earlier events do not restore it.

        `entity`, `ordering` and `event_id` are those of `apply`. Return the outcome, as `apply` does.
        """
        return await flows.apply(self.engine, self.definition, StateEvent(entity, ordering, deleted, event_id))

    async def apply_many(self, events: Iterable[StateEvent[T] | tuple[Any, ...]]) -> list[Outcome[T]]:
        """Apply thousands of events in one call.

        Args:
            events: `StateEvent` objects, or tuples of entity, ordering, value and, if you like, event id.

        Returns:
            The outcomes, in input order. An invalid event is `Failed`, and does not affect the others.
        """
        return await flows.apply_all(self.engine, self.definition, events)

    async def apply_in(
        self,
        connection: Any,
        entity: Any,
        ordering: AnyOrdering,
        value: T | DeletedValue,
        *,
        event_id: Any = None,
        payload: Any = None,
    ) -> Outcome[T]:
        """Apply an event in your own transaction. Write your own row there if the outcome is `applied`.

        Args:
            connection: An open connection or session to the database of the records. You commit it.
            entity: What the event is about.
            ordering: The position of the event among those of its entity.
            value: The new value, or `deleted` to delete the entity.
            event_id: Identifies the event, as for `apply`.
            payload: What identifies the content, as for `apply`.

        Returns:
            The outcome, as from `apply`. It holds only if you commit.
        """
        return await flows.apply(
            self.engine, self.definition, StateEvent(entity, ordering, value, event_id, payload), connection
        )

    async def apply_many_in(
        self, connection: Any, events: Iterable[StateEvent[T] | tuple[Any, ...]]
    ) -> list[Outcome[T]]:
        """Apply many events in your own transaction.

        Args:
            connection: An open connection or session to the database of the records. You commit it.
            events: As for `apply_many`.

        Returns:
            The outcomes, in input order.
        """
        return await flows.apply_all(self.engine, self.definition, events, connection)

    async def get(self, entity: Any) -> T | None:
        """Return the latest value; None if there is none, or the entity was deleted."""
        current: Current[T] | None = await flows.read(self.engine, self.definition, entity)
        return None if current is None else current.value

    async def read(self, entity: Any) -> Current[T] | None:
        """Return the latest value with its ordering, also of a deleted entity; None if nothing is known."""
        return await flows.read(self.engine, self.definition, entity)

    async def entities(self, limit: int = 1_000) -> list[Current[T]]:
        """Return the entities that have a value, up to `limit`: for display and debugging."""
        return await listing.entities(self.engine, self.definition, limit)

    async def known(self, entity: Any, *, message_id: str | None = None, event_id: Any = None) -> Known | None:
        """Return what is stored about a message or an event of this entity, or None if it is unknown or expired.

        Pass the `message_id` of the transport, or the `event_id` that was given to `apply`.
        """
        return await listing.known(self.engine, self.definition, entity, message_id, event_id)
