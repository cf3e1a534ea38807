"""Apply events to the latest state of entities: encode them, send them to the store, and return an outcome for each.

The store applies the rule in `protocol.latest`, which ignores duplicates and stale events.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from onceward.engine.acquire import emit_no_answer
from onceward.engine.engine import YIELD_EVERY, Engine
from onceward.engine.entry import time_of
from onceward.engine.error_text import message_of
from onceward.engine.events import Event
from onceward.engine.within import finish_transaction, join
from onceward.errors import ConfigurationError, OutcomeParked, ResultError, StoreError, VersionSkew
from onceward.keys.canonical import ENCODER_VERSION, canonical_all
from onceward.keys.key import Key, Scope, make_key
from onceward.keys.small import is_small
from onceward.protocol.capabilities import AppliesEvents, LatestStates
from onceward.protocol.duration import format_duration
from onceward.protocol.latest import (
    APPLIED,
    NO_MARK,
    STALE,
    EntityState,
    EventDelivery,
    LatestDecision,
    LatestResult,
    Retention,
    mark_of,
)
from onceward.protocol.ordering import CONTENT_BYTES, decode_ordering, position_of
from onceward.protocol.outcome import Executed, Failed, Mismatch, Outcome, Parked, Replayed, Stale
from onceward.results.codec import Codec
from onceward.results.result_type import Unstorable

from .event import Current, DerivedId, StateEvent, deleted, event_mark, event_name

BATCH: Final = 1_000
"""Events in one call to the store: some milliseconds, so that other callers get a turn in between."""

BATCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes of values in one call to the store, approximately."""

MAX_CACHED_KEYS: Final = 65_536
"""Entities whose keys are cached, so that they are not hashed for every event. A few megabytes."""

_VERSION: Final = bytes((ENCODER_VERSION,))
_HASH_BYTES: Final = CONTENT_BYTES - len(_VERSION)
_STR_ONLY: Final = frozenset((str,))
_concat = b"".join
_sha256 = hashlib.sha256

AnyEvent = StateEvent[Any] | tuple[Any, ...]


class StateDefinition:
    """The declaration of one state: its scope, the codec of its values, and its retention."""

    def __init__(self, scope: Scope, codec: Codec, keep: Retention, max_clock_skew: int | None, timeout: float) -> None:
        self.scope = scope
        self._scope_text = scope.text
        self.codec = codec
        self.keep = keep
        self.max_clock_skew = max_clock_skew
        self.timeout = timeout
        self._keys: dict[str, Key] = {}

    def key(self, entity: Any) -> Key:
        """Return the key of an entity, from the cache if possible."""
        if type(entity) is not str:  # 1, True and 1.0 are one dict key, but three entities
            return make_key(self.scope, entity)
        key = self._keys.get(entity)
        if key is None:
            key = make_key(self.scope, entity)
            if len(self._keys) >= MAX_CACHED_KEYS:
                self._keys.clear()
            self._keys[entity] = key
        return key

    def mark(self, entity: Any, message_id: str | None, event_id: Any) -> bytes:
        """Return the deduplication mark of a message or an event of this entity."""
        if (message_id is None) == (event_id is None):
            raise ConfigurationError("pass either message_id= or event_id=")
        id = self.key(entity).id
        if isinstance(event_id, DerivedId):
            raise ConfigurationError(
                "a derived id alone does not identify an event: its content does, too", hint="pass message_id="
            )
        if message_id is None:
            return event_mark(id, event_id)
        return mark_of(id, b"message", message_id.encode(), message_id)

    def deliveries(self, events: Sequence[AnyEvent]) -> EncodedEvents:
        """Encode the events for the store, all at once because that is faster. Raise if any of them is invalid."""
        checked = [event if type(event) is StateEvent else _as_event(event) for event in events]
        keys = self._keys_of([event.entity for event in checked])
        values = [None if event.value is deleted else event.value for event in checked]
        contents = canonical_all(_contents(checked, values))
        try:
            data = self.codec.pack_all(values, [key.id for key in keys])
        except Unstorable as error:
            raise ResultError(f"the value cannot be stored: {error}", key=keys[0].text) from None
        return EncodedEvents(self._deliveries(checked, keys, contents, data), values, sum(map(len, data)))

    def _keys_of(self, entities: list[Any]) -> list[Key]:
        """Return the keys of the entities. Most are cached; those are looked up in one step."""
        key = self.key
        if set(map(type, entities)) != _STR_ONLY:
            return list(map(key, entities))
        cached = list(map(self._keys.get, entities))
        return [one or key(entity) for one, entity in zip(cached, entities, strict=True)]

    def _deliveries(
        self, events: list[StateEvent[Any]], keys: list[Key], contents: list[bytes], data: list[bytes]
    ) -> list[EventDelivery]:
        """Return the deliveries. This is one loop, because a function call per event would double the cost."""
        deliveries: list[EventDelivery] = []
        scope, max_clock_skew = self._scope_text, self.max_clock_skew
        for event, key, content, value in zip(events, keys, contents, data, strict=True):
            id, event_id = key.id, event.event_id
            position = position_of(event.ordering)
            head, message = position.head, position.message_id
            is_deleted = event.value is deleted
            timed = event.payload is None or is_deleted  # otherwise the payload alone is the content
            hashed = content if not timed else head if is_deleted else head + content
            digest = _sha256(hashed).digest()[:_HASH_BYTES]  # same for all consumers
            order = _concat((head, position.tail, _VERSION, digest))
            if message is None and event_id is None and max_clock_skew is None:
                deliveries.append(EventDelivery(id, scope, key.text, order, None if is_deleted else value))
                continue
            time = position.time
            deliveries.append(
                EventDelivery(
                    id,
                    scope,
                    key.text,
                    order,
                    None if is_deleted else value,
                    NO_MARK if message is None else mark_of(id, b"message", message.encode(), message),
                    NO_MARK if event_id is None else event_mark(id, event_id, digest),
                    message or "",
                    0 if max_clock_skew is None or time is None else time - max_clock_skew,
                    event_name(event_id),
                )
            )
        return deliveries


class EncodedEvents(NamedTuple):
    """Encoded events: deliveries, values, their total size in bytes, and the errors of invalid events by position."""

    deliveries: list[EventDelivery]
    values: list[Any]
    size: int
    errors: Mapping[int, Exception] = MappingProxyType({})


def _as_event(event: Any) -> StateEvent[Any]:
    if isinstance(event, StateEvent):
        return event
    if isinstance(event, tuple) and 3 <= len(event) <= 4:  # noqa: PLR2004 (the fields of StateEvent)
        return StateEvent(*event)
    raise ConfigurationError(
        f"{type(event).__name__} is not an event", hint="pass StateEvent(entity, ordering, value), or a tuple of these"
    )


# ── the flows ──


async def apply(
    engine: Engine, definition: StateDefinition, event: StateEvent[Any], connection: Any = None
) -> Outcome[Any]:
    """Apply one event. Raise if it is invalid."""
    [outcome] = await apply_all(engine, definition, [event], connection)
    if isinstance(outcome, Failed):
        outcome.unwrap()
    return outcome


async def apply_all(
    engine: Engine, definition: StateDefinition, events: Iterable[AnyEvent], connection: Any = None
) -> list[Outcome[Any]]:
    """Apply events, and return an outcome for each, in order. With a connection: in its transaction, without commit."""
    try:
        if connection is None:
            await engine.ready()
            return await _apply(engine, definition, _latest_store(engine), events)
        transaction = await join(engine, connection)
        outcomes = await _apply(engine, definition, transaction.store, events)
        await finish_transaction(engine, transaction)
    except StoreError as error:
        emit_no_answer(engine, Key(definition.scope, "", b""), error)
        raise
    return outcomes


async def read(engine: Engine, definition: StateDefinition, entity: Any) -> Current[Any] | None:
    """Return the state of an entity, also if it was deleted; None if nothing is known about it."""
    await engine.ready()
    [state] = await _latest_store(engine).read_latest([definition.key(entity).id], timeout=definition.timeout)
    return None if state is None else await current(engine, definition, state)


async def current(engine: Engine, definition: StateDefinition, one: EntityState) -> Current[Any]:
    """Decode a stored state."""
    value = None if one.value is None else await engine.decode(definition.codec, one.value, one.id)
    return Current(one.entity, value, decode_ordering(one.order), time_of(one.updated_at), one.value is None)


def _latest_store(engine: Engine) -> LatestStates:
    if engine.store.latest is None:
        raise ConfigurationError(
            f"{engine.store.name} cannot store the latest state of entities",
            hint="use memory://, sqlite:///…, postgresql://…, redis://… or firestore://…",
        )
    return engine.store.latest


async def _apply(
    engine: Engine, definition: StateDefinition, store: AppliesEvents, events: Iterable[AnyEvent]
) -> list[Outcome[Any]]:
    outcomes: list[Outcome[Any]] = []
    remaining = iter(events)
    while chunk := list(islice(remaining, BATCH)):
        if outcomes:
            await engine.runtime.sleep(0)  # let other tasks run between chunks
        encoded = await _encode_events(engine, definition, chunk)
        answers: list[LatestResult] = []
        for batch in _batches(encoded):
            answers += await store.apply_events(batch, definition.keep, timeout=definition.timeout)
        outcomes += _outcomes(engine, definition, encoded, answers)
    return outcomes


async def _encode_events(engine: Engine, definition: StateDefinition, events: Sequence[AnyEvent]) -> EncodedEvents:
    """Encode the events, many or large ones in a worker thread: they must not block other tasks."""
    if len(events) <= YIELD_EVERY and all(is_small(_fields(event)) for event in events):
        return _encode(definition, events)
    return await engine.runtime.compute(_encode, definition, events)


def _encode(definition: StateDefinition, events: Sequence[AnyEvent]) -> EncodedEvents:
    """Encode all events together. If that fails, encode them one by one, so that only the invalid ones fail."""
    try:
        return definition.deliveries(events)
    except Exception:  # noqa: BLE001, S110 (the loop below finds the invalid ones)
        pass
    deliveries: list[EventDelivery] = []
    values: list[Any] = []
    errors: dict[int, Exception] = {}
    for position, event in enumerate(events):
        try:
            one = definition.deliveries([event])
        except Exception as error:  # noqa: BLE001 (returned as the outcome of this event)
            errors[position] = error
        else:
            deliveries += one.deliveries
            values += one.values
    return EncodedEvents(deliveries, values, sum(len(one.value or b"") for one in deliveries), errors)


def _contents(events: Sequence[StateEvent[Any]], values: list[Any]) -> list[Any]:
    """Return the content of each event: its payload if it has one, otherwise its value. Most have no payload."""
    if [event.payload for event in events].count(None) == len(events):
        return values
    return [
        value if event.payload is None or event.value is deleted else event.payload
        for event, value in zip(events, values, strict=True)
    ]


def _fields(event: AnyEvent) -> Any:
    return (event.entity, event.value, event.event_id, event.payload) if isinstance(event, StateEvent) else event


def _batches(encoded: EncodedEvents) -> Iterator[list[EventDelivery]]:
    batch = encoded.deliveries
    if encoded.size > BATCH_BYTES:
        batch, size = [], 0
        for one in encoded.deliveries:
            size += len(one.value or b"")
            if size > BATCH_BYTES and batch:
                yield batch
                batch, size = [], len(one.value or b"")
            batch.append(one)
    if batch:
        yield batch


# ── outcomes ──


def _outcomes(
    engine: Engine, definition: StateDefinition, encoded: EncodedEvents, answers: Sequence[LatestResult]
) -> list[Outcome[Any]]:
    outcomes: list[Outcome[Any]] = [
        Executed(key=one.entity, value=value, reason="applied")
        if result is APPLIED  # nearly all results are this or the next one
        else Stale(key=one.entity, reason="stale_event_ignored")
        if result is STALE
        else _outcome(definition, one, value, result)
        for one, value, result in zip(encoded.deliveries, encoded.values, answers, strict=True)
    ]
    _emit(engine, encoded.deliveries, answers, outcomes)
    for position, error in encoded.errors.items():  # in ascending order, so that each is inserted at its own position
        outcomes.insert(position, _failed("", error))
    return outcomes


def _emit(
    engine: Engine,
    deliveries: Sequence[EventDelivery],
    answers: Sequence[LatestResult],
    outcomes: Sequence[Outcome[Any]],
) -> None:
    counts = Counter([result.decision for result in answers])
    if engine.bus.totals is not None:
        for decision, times in counts.items():
            engine.bus.count(EVENTS[decision], deliveries[0].scope, times)
    wanted = {decision for decision, times in counts.items() if engine.bus.wants(EVENTS[decision], times)}
    if not wanted:
        return
    for one, result, outcome in zip(deliveries, answers, outcomes, strict=True):
        if result.decision in wanted:
            name = EVENTS[result.decision]
            engine.bus.emit(Event(name=name, key=one.entity, scope=one.scope, reason=outcome.reason))


EVENTS: Final = {
    LatestDecision.APPLIED: "applied",
    LatestDecision.DUPLICATE_MESSAGE: "skipped",
    LatestDecision.DUPLICATE_EVENT: "skipped",
    LatestDecision.STALE: "stale",
    LatestDecision.MISMATCH: "mismatch",
    LatestDecision.EVENT_MISMATCH: "mismatch",
    LatestDecision.PARKED: "parked",
    LatestDecision.SKEW: "failed",
}


def _outcome(definition: StateDefinition, one: EventDelivery, value: Any, result: LatestResult) -> Outcome[Any]:
    decision = result.decision
    if decision is LatestDecision.APPLIED:
        return Executed(key=one.entity, value=value, reason="applied", conflict=result.conflict)
    if decision is LatestDecision.STALE:
        return Stale(key=one.entity, reason="stale_event_ignored", conflict=result.conflict)
    if decision is LatestDecision.DUPLICATE_MESSAGE or decision is LatestDecision.DUPLICATE_EVENT:
        return Replayed(key=one.entity, value=value, reason=f"{decision.value}_noop")
    if decision is LatestDecision.MISMATCH or decision is LatestDecision.EVENT_MISMATCH:
        return Mismatch(key=one.entity, reason=decision.value)
    if decision is LatestDecision.PARKED:
        return _parked(definition, one)
    skew = VersionSkew(
        "the entity was written by a newer Onceward; it was not changed", key=one.entity, hint="upgrade this process"
    )
    return _failed(one.entity, skew)


def _parked(definition: StateDefinition, one: EventDelivery) -> Outcome[Any]:
    why = f"its time is more than {format_duration(definition.max_clock_skew or 0)} ahead of the store's"
    error = OutcomeParked(
        f"the event was not applied: {why}",
        key=one.entity,
        hint="it was not stored: check its producer's clock, then deliver it again later, or drop it",
    )
    return Parked(key=one.entity, reason="future_event_parked", error_type="FutureEvent", error=why, exception=error)


def _failed(key: str, error: Exception) -> Outcome[Any]:
    return Failed(key=key, error_type=type(error).__qualname__, error=message_of(error), final=True, exception=error)
