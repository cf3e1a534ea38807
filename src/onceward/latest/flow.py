"""The guard against old events: any number of deliveries in, the newest state and an outcome each out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from onceward.engine.engine import YIELD_EVERY, Engine
from onceward.engine.entry import time_of
from onceward.engine.error_text import message_of
from onceward.engine.events import Event
from onceward.engine.interrupted import emit_no_answer
from onceward.engine.within import finish_transaction, join
from onceward.errors import ConfigurationError, MissingKey, OutcomeParked, ResultError, StoreError, VersionSkew
from onceward.keys.canonical import ENCODER_VERSION, canonical, canonical_all
from onceward.keys.key import Key, Scope, is_empty, make_key
from onceward.keys.weight import is_light
from onceward.protocol.capabilities import AppliesLatest, JoinsLatest, KeepsLatest
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
from onceward.protocol.signals import came_by_signal
from onceward.results.codec import Codec
from onceward.results.result_type import Unstorable

from .event import Current, StateEvent, deleted

BATCH: Final = 1_000
"""Events in one call to the store: some milliseconds, so that others pass in between."""

BATCH_BYTES: Final = 4 * 1024 * 1024
"""... or as many as have about so many bytes."""

MOST_KEYS: Final = 65_536
"""Entities whose ids are remembered, so that they are not hashed for every event. A few megabytes."""

_VERSION: Final = bytes((ENCODER_VERSION,))
_HASH: Final = CONTENT_BYTES - len(_VERSION)
_TEXTS: Final = frozenset((str,))
_joined = b"".join
_sha256 = hashlib.sha256

AnyEvent = StateEvent[Any] | tuple[Any, ...]


class LatestFlow:
    """What is declared about one state: whose it is, how values are stored, what is kept for how long."""

    def __init__(self, scope: Scope, codec: Codec, keep: Retention, max_clock_skew: int | None, timeout: float) -> None:
        self.scope = scope
        self._scope_text = scope.text
        self.codec = codec
        self.keep = keep
        self.max_clock_skew = max_clock_skew
        self.timeout = timeout
        self._keys: dict[str, Key] = {}

    def key(self, entity: Any) -> Key:
        """Hashed once, as long as it is remembered."""
        if type(entity) is not str:  # 1, True and 1.0 are one key of a dict, and three entities
            return make_key(self.scope, entity)
        key = self._keys.get(entity)
        if key is None:
            key = make_key(self.scope, entity)
            if len(self._keys) >= MOST_KEYS:
                self._keys.clear()
            self._keys[entity] = key
        return key

    def mark(self, entity: Any, message_id: str | None, event_id: Any) -> bytes:
        """Under which a message or an event of this entity is known."""
        if (message_id is None) == (event_id is None):
            raise ConfigurationError("give either message_id= or event_id=")
        id = self.key(entity).id
        if message_id is None:
            return _event_mark(id, event_id)
        return mark_of(id, b"message", message_id.encode(), message_id)

    def deliveries(self, events: Sequence[AnyEvent]) -> Made:
        """Events, ready for the store: many in few steps. Raises what is wrong with any of them."""
        given = [event if type(event) is StateEvent else _event(event) for event in events]
        keys = self._keys_of([event.entity for event in given])
        values = [None if event.value is deleted else event.value for event in given]
        said = canonical_all(_contents(given, values))
        try:
            data = self.codec.pack_all(values, [key.id for key in keys])
        except Unstorable as error:
            raise ResultError(f"the value cannot be kept: {error}", key=keys[0].text) from None
        return Made(self._made(given, keys, said, data), values, sum(map(len, data)))

    def _keys_of(self, entities: list[Any]) -> list[Key]:
        """Most are remembered: all of these in one step."""
        key = self.key
        if set(map(type, entities)) != _TEXTS:
            return list(map(key, entities))
        known = list(map(self._keys.get, entities))
        return [one or key(entity) for one, entity in zip(known, entities, strict=True)]

    def _made(
        self, events: list[StateEvent[Any]], keys: list[Key], said: list[bytes], data: list[bytes]
    ) -> list[EventDelivery]:
        """All in one loop: to call something for each of them would cost as much as it does."""
        made: list[EventDelivery] = []
        scope, max_clock_skew = self._scope_text, self.max_clock_skew
        for event, key, says, value in zip(events, keys, said, data, strict=True):
            id, event_id = key.id, event.event_id
            place = position_of(event.ordering)
            head, message = place.head, place.message_id
            gone = event.value is deleted
            content = _sha256(head if gone else head + says).digest()[:_HASH]  # the same for all consumers
            order = _joined((head, place.tail, _VERSION, content))
            if message is None and event_id is None and max_clock_skew is None:
                made.append(EventDelivery(id, scope, key.text, order, None if gone else value))
                continue
            time = place.time
            made.append(
                EventDelivery(
                    id,
                    scope,
                    key.text,
                    order,
                    None if gone else value,
                    NO_MARK if message is None else mark_of(id, b"message", message.encode(), message),
                    NO_MARK if event_id is None else _event_mark(id, event_id),
                    message or "",
                    0 if max_clock_skew is None or time is None else time - max_clock_skew,
                )
            )
        return made


class Made(NamedTuple):
    """What some events became: deliveries, their values, of how many bytes, and by its position each that cannot be."""

    deliveries: list[EventDelivery]
    values: list[Any]
    size: int
    troubles: Mapping[int, Exception] = MappingProxyType({})


def _event(given: Any) -> StateEvent[Any]:
    if isinstance(given, StateEvent):
        return given
    if isinstance(given, tuple) and 3 <= len(given) <= 4:  # noqa: PLR2004 (as StateEvent has it)
        return StateEvent(*given)
    raise ConfigurationError(
        f"{type(given).__name__} is no event", hint="give StateEvent(entity, ordering, value), or these as a tuple"
    )


def _event_mark(id: bytes, event_id: Any) -> bytes:
    if is_empty(event_id):
        raise MissingKey("the event id is empty", hint="None means that the event has none")
    return mark_of(id, b"event", canonical(event_id, root="event_id"), event_id if type(event_id) is str else "")


# ── the flows ──


async def apply(engine: Engine, flow: LatestFlow, event: StateEvent[Any], connection: Any = None) -> Outcome[Any]:
    """One event. What cannot even be asked is raised."""
    [outcome] = await apply_all(engine, flow, [event], connection)
    if isinstance(outcome, Failed):
        outcome.unwrap()
    return outcome


async def apply_all(
    engine: Engine, flow: LatestFlow, events: Iterable[AnyEvent], connection: Any = None
) -> list[Outcome[Any]]:
    """An outcome an event, in the order of the events. With a connection: in that transaction, and nothing commits."""
    try:
        return await _apply_all(engine, flow, events, connection)
    except StoreError as error:
        emit_no_answer(engine, Key(flow.scope, "", b""), error)
        raise


async def _apply_all(
    engine: Engine, flow: LatestFlow, events: Iterable[AnyEvent], connection: Any
) -> list[Outcome[Any]]:
    if connection is None:
        await engine.ready()
        return await _apply(engine, flow, _heartbeat(engine), events)
    transaction = await join(engine, connection)
    if not isinstance(transaction.store, JoinsLatest):
        raise _unable(engine)
    outcomes = await _apply(engine, flow, transaction.store, events)
    await finish_transaction(engine, transaction)
    return outcomes


async def read(engine: Engine, flow: LatestFlow, entity: Any) -> Current[Any] | None:
    """The state of an entity, deleted ones included; None if there is none."""
    await engine.ready()
    [standing] = await _heartbeat(engine).latest([flow.key(entity).id], timeout=flow.timeout)
    return None if standing is None else await current(engine, flow, standing)


async def current(engine: Engine, flow: LatestFlow, one: EntityState) -> Current[Any]:
    """A state as its user sees it."""
    value = None if one.value is None else await engine.decode(flow.codec, one.value, one.id)
    return Current(one.entity, value, decode_ordering(one.order), time_of(one.updated_at), one.value is None)


def _heartbeat(engine: Engine) -> KeepsLatest:
    if not isinstance(engine.store, KeepsLatest):
        raise _unable(engine)
    return engine.store


def _unable(engine: Engine) -> ConfigurationError:
    return ConfigurationError(
        f"{engine.store.name} cannot keep the newest state of entities",
        hint="use memory://, sqlite:///…, postgresql://…, redis://… or firestore://…",
    )


async def _apply(
    engine: Engine, flow: LatestFlow, store: AppliesLatest, events: Iterable[AnyEvent]
) -> list[Outcome[Any]]:
    outcomes: list[Outcome[Any]] = []
    left = iter(events)
    while chunk := list(islice(left, BATCH)):
        if outcomes:
            await engine.runtime.sleep(0)  # others pass in between
        made = await _prepared(engine, flow, chunk)
        answers: list[LatestResult] = []
        for batch in _batches(made):
            answers += await store.apply_events(batch, flow.keep, timeout=flow.timeout)
        outcomes += _told(engine, flow, made, answers)
    return outcomes


async def _prepared(engine: Engine, flow: LatestFlow, events: Sequence[AnyEvent]) -> Made:
    """Many or large ones are no reason to block whoever shares our thread."""
    if len(events) <= YIELD_EVERY and all(is_light(_fields(event)) for event in events):
        return _made(flow, events)
    return await engine.runtime.compute(_made, flow, events)


def _made(flow: LatestFlow, events: Sequence[AnyEvent]) -> Made:
    """All together, and one by one if there is any trouble: it is only the trouble of those that have it."""
    try:
        return flow.deliveries(events)
    except Exception as error:
        if came_by_signal(error):
            raise
    deliveries: list[EventDelivery] = []
    values: list[Any] = []
    troubles: dict[int, Exception] = {}
    for position, event in enumerate(events):
        try:
            one = flow.deliveries([event])
        except Exception as error:
            if came_by_signal(error):
                raise
            troubles[position] = error
        else:
            deliveries += one.deliveries
            values += one.values
    return Made(deliveries, values, sum(len(one.value or b"") for one in deliveries), troubles)


def _contents(events: Sequence[StateEvent[Any]], values: list[Any]) -> list[Any]:
    """What each event says: its payload, if it has one; most have none."""
    if [event.payload for event in events].count(None) == len(events):
        return values
    return [
        value if event.payload is None or event.value is deleted else event.payload
        for event, value in zip(events, values, strict=True)
    ]


def _fields(event: AnyEvent) -> Any:
    return (event.entity, event.value, event.event_id, event.payload) if isinstance(event, StateEvent) else event


def _batches(made: Made) -> Iterator[list[EventDelivery]]:
    if made.size <= BATCH_BYTES:
        if made.deliveries:
            yield made.deliveries
        return
    batch: list[EventDelivery] = []
    size = 0
    for one in made.deliveries:
        size += len(one.value or b"")
        if size > BATCH_BYTES and batch:
            yield batch
            batch, size = [], len(one.value or b"")
        batch.append(one)
    yield batch


# ── what is told ──


def _told(engine: Engine, flow: LatestFlow, made: Made, answers: Sequence[LatestResult]) -> list[Outcome[Any]]:
    outcomes: list[Outcome[Any]] = [
        Executed(key=one.entity, value=value, reason="applied")
        if ruled is APPLIED  # what nearly all are: this or the next
        else Stale(key=one.entity, reason="stale_event_ignored")
        if ruled is STALE
        else _outcome(flow, one, value, ruled)
        for one, value, ruled in zip(made.deliveries, made.values, answers, strict=True)
    ]
    _emit(engine, made.deliveries, answers, outcomes)
    for position, error in made.troubles.items():  # in rising order, so that each comes to stand where it belongs
        outcomes.insert(position, _failed("", error))
    return outcomes


def _emit(
    engine: Engine,
    deliveries: Sequence[EventDelivery],
    answers: Sequence[LatestResult],
    outcomes: Sequence[Outcome[Any]],
) -> None:
    tally = Counter([ruled.decision for ruled in answers])
    if engine.bus.totals is not None:
        for decision, times in tally.items():
            engine.bus.count(EVENTS[decision], deliveries[0].scope, times)
    heard = {decision for decision, times in tally.items() if engine.bus.wants(EVENTS[decision], times)}
    if not heard:
        return
    for one, ruled, outcome in zip(deliveries, answers, outcomes, strict=True):
        if ruled.decision in heard:
            name = EVENTS[ruled.decision]
            engine.bus.emit(Event(name=name, key=one.entity, scope=one.scope, reason=outcome.reason))


EVENTS: Final = {
    LatestDecision.APPLIED: "applied",
    LatestDecision.DUPLICATE_MESSAGE: "skipped",
    LatestDecision.DUPLICATE_EVENT: "skipped",
    LatestDecision.STALE: "stale",
    LatestDecision.MISMATCH: "mismatch",
    LatestDecision.PARKED: "parked",
    LatestDecision.SKEW: "failed",
}


def _outcome(flow: LatestFlow, one: EventDelivery, value: Any, ruled: LatestResult) -> Outcome[Any]:
    decision = ruled.decision
    if decision is LatestDecision.APPLIED:
        return Executed(key=one.entity, value=value, reason="applied", conflict=ruled.conflict)
    if decision is LatestDecision.STALE:
        return Stale(key=one.entity, reason="stale_event_ignored", conflict=ruled.conflict)
    if decision is LatestDecision.DUPLICATE_MESSAGE or decision is LatestDecision.DUPLICATE_EVENT:
        reason = f"{decision.value}_{'newer' if ruled.applied else 'noop'}"
        return Replayed(key=one.entity, value=value, reason=reason, applied=ruled.applied, conflict=ruled.conflict)
    if decision is LatestDecision.MISMATCH:
        return Mismatch(key=one.entity)
    if decision is LatestDecision.PARKED:
        return _parked(flow, one)
    skew = VersionSkew(
        "the entity was written by a newer Onceward; left alone", key=one.entity, hint="upgrade this process"
    )
    return _failed(one.entity, skew)


def _parked(flow: LatestFlow, one: EventDelivery) -> Outcome[Any]:
    said = f"its time is more than {format_duration(flow.max_clock_skew or 0)} ahead of the store's"
    error = OutcomeParked(
        f"the event was put aside: {said}",
        key=one.entity,
        hint="nothing of it was kept: look at its producer's clock, and deliver it again later, or drop it",
    )
    return Parked(key=one.entity, reason="future_event_parked", error_type="FutureEvent", error=said, exception=error)


def _failed(key: str, error: Exception) -> Outcome[Any]:
    return Failed(key=key, error_type=type(error).__qualname__, error=message_of(error), final=True, exception=error)
