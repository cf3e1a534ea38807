"""The guard against old events: any number of deliveries in, the newest state and an outcome each out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from onceward.errors import ConfigurationError, MissingKey, OutcomeParked, ResultError, VersionSkew
from onceward.model.canonical import ENCODER_VERSION, canonical
from onceward.model.codec import Codec
from onceward.model.duration import readable
from onceward.model.key import Key, Scope, is_empty, make_key
from onceward.model.newest import NO_MARK, Delivery, Keep, Ruled, Ruling, mark_of
from onceward.model.ordering import CONTENT, AnyOrdering, ordering_of, place_of
from onceward.model.outcome import Executed, Failed, Mismatch, Outcome, Parked, Replayed, Stale
from onceward.model.results import Unstorable
from onceward.model.state_event import Current, StateEvent, deleted
from onceward.model.view import time_of
from onceward.model.weight import is_light
from onceward.observe.events import Event
from onceward.ports import AppliesNewest, JoinsNewest, KeepsNewest

from .engine import AT_A_TIME, Engine
from .held import message_of
from .within import join, part

BATCH: Final = 1_000
"""Events in one call to the store: some milliseconds, so that others pass in between."""

BATCH_BYTES: Final = 4 * 1024 * 1024
"""... or as many as have about so many bytes."""

MOST_KEYS: Final = 65_536
"""Entities whose ids are remembered, so that they are not hashed for every event. A few megabytes."""

_VERSION: Final = bytes((ENCODER_VERSION,))
_DELETED: Final = b""  # shorter than any value
_sha256 = hashlib.sha256

AnyEvent = StateEvent[Any] | tuple[Any, ...]


class Newest:
    """What is declared about one state: whose it is, how values are stored, what is kept for how long."""

    def __init__(self, scope: Scope, codec: Codec, keep: Keep, ahead: int | None, timeout: float) -> None:
        self.scope = scope
        self._scope_text = scope.text
        self.codec = codec
        self.keep = keep
        self.ahead = ahead
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

    def delivery(self, entity: Any, ordering: AnyOrdering, value: Any, event_id: Any = None) -> Delivery:
        """One event, ready for the store."""
        key = self.key(entity)
        id = key.id
        place = place_of(ordering)
        data: bytes | None = None
        said = _DELETED
        if value is not deleted:
            said = canonical(value)
            try:
                data = self.codec.pack(value, id)
            except Unstorable as error:
                raise ResultError(f"the value cannot be kept: {error}", key=key.text) from None
        content = _VERSION + _sha256(place.head + said).digest()[: CONTENT - 1]  # the same for all consumers
        message, time, ahead = place.message_id, place.time, self.ahead
        return Delivery(
            id,
            self._scope_text,
            key.text,
            place.order(content),
            data,
            NO_MARK if message is None else mark_of(id, b"message", message.encode(), message),
            NO_MARK if event_id is None else _event_mark(id, event_id),
            message or "",
            0 if ahead is None or time is None else time - ahead,
        )

    def delivery_of(self, event: AnyEvent) -> Delivery:
        if isinstance(event, StateEvent):
            return self.delivery(event.entity, event.ordering, event.value, event.event_id)
        if isinstance(event, tuple) and 3 <= len(event) <= 4:  # noqa: PLR2004 (as StateEvent has it)
            return self.delivery(*event)
        raise ConfigurationError(
            f"{type(event).__name__} is no event", hint="give StateEvent(entity, ordering, value), or these as a tuple"
        )


def _event_mark(id: bytes, event_id: Any) -> bytes:
    if is_empty(event_id):
        raise MissingKey("the event id is empty", hint="None means that the event has none")
    return mark_of(id, b"event", canonical(event_id, root="event_id"), event_id if type(event_id) is str else "")


# ── the flows ──


async def apply(engine: Engine, newest: Newest, event: StateEvent[Any], connection: Any = None) -> Outcome[Any]:
    """One event. What cannot even be asked is raised."""
    [outcome] = await apply_all(engine, newest, [event], connection)
    if isinstance(outcome, Failed):
        outcome.unwrap()
    return outcome


async def apply_all(
    engine: Engine, newest: Newest, events: Iterable[AnyEvent], connection: Any = None
) -> list[Outcome[Any]]:
    """An outcome an event, in the order of the events. With a connection: in that transaction, and nothing commits."""
    if connection is None:
        await engine.ready()
        return await _apply(engine, newest, _keeper(engine), events)
    transaction = await join(engine, connection)
    if not isinstance(transaction.store, JoinsNewest):
        raise _unable(engine)
    outcomes = await _apply(engine, newest, transaction.store, events)
    await part(engine, transaction)
    return outcomes


async def read(engine: Engine, newest: Newest, entity: Any) -> Current[Any] | None:
    """The state of an entity, deleted ones included; None if there is none."""
    await engine.ready()
    id = newest.key(entity).id
    [standing] = await _keeper(engine).newest([id], timeout=newest.timeout)
    if standing is None:
        return None
    gone = standing.value is None
    value = None if standing.value is None else await engine.decode(newest.codec, standing.value, id)
    return Current(standing.entity, value, ordering_of(standing.order), time_of(standing.updated_at), gone)


def _keeper(engine: Engine) -> KeepsNewest:
    if not isinstance(engine.store, KeepsNewest):
        raise _unable(engine)
    return engine.store


def _unable(engine: Engine) -> ConfigurationError:
    return ConfigurationError(
        f"{engine.store.name} cannot keep the newest state of entities",
        hint="use memory://, sqlite:///… or postgresql://…",
    )


async def _apply(
    engine: Engine, newest: Newest, store: AppliesNewest, events: Iterable[AnyEvent]
) -> list[Outcome[Any]]:
    outcomes: list[Outcome[Any]] = []
    left = iter(events)
    while chunk := list(islice(left, BATCH)):
        made = await _prepared(engine, newest, chunk)
        answers: list[Ruled] = []
        for batch in _batches([one for one in made if isinstance(one, Delivery)]):
            answers += await store.keep_newest(batch, newest.keep, timeout=newest.timeout)
        outcomes += _told(engine, newest, chunk, made, answers)
        if len(chunk) > AT_A_TIME:
            await engine.world.sleep(0)
    return outcomes


async def _prepared(engine: Engine, newest: Newest, events: Sequence[AnyEvent]) -> list[Delivery | Exception]:
    """Many or large ones are no reason to block whoever shares our thread."""
    if len(events) <= AT_A_TIME and all(is_light(_fields(event)) for event in events):
        return _made(newest, events)
    return await engine.world.think(_made, newest, events)


def _made(newest: Newest, events: Sequence[AnyEvent]) -> list[Delivery | Exception]:
    made: list[Delivery | Exception] = []
    delivery = newest.delivery
    for event in events:
        try:
            if type(event) is StateEvent:
                made.append(delivery(event.entity, event.ordering, event.value, event.event_id))
            else:
                made.append(newest.delivery_of(event))
        except Exception as error:  # noqa: BLE001 (what cannot be made is the trouble of this one alone)
            made.append(error)
    return made


def _fields(event: AnyEvent) -> Any:
    return (event.entity, event.value, event.event_id) if isinstance(event, StateEvent) else event


def _batches(deliveries: list[Delivery]) -> Iterator[list[Delivery]]:
    batch: list[Delivery] = []
    size = 0
    for one in deliveries:
        size += len(one.value or b"")
        if size > BATCH_BYTES and batch:
            yield batch
            batch, size = [], len(one.value or b"")
        batch.append(one)
    if batch:
        yield batch


# ── what is told ──


def _told(
    engine: Engine,
    newest: Newest,
    events: Sequence[AnyEvent],
    made: Sequence[Delivery | Exception],
    answers: Sequence[Ruled],
) -> list[Outcome[Any]]:
    rulings = iter(answers)
    outcomes: list[Outcome[Any]] = []
    tally = Counter([ruled.ruling for ruled in answers])
    heard = {ruling: engine.bus.wants(EVENTS[ruling], times) for ruling, times in tally.items()}
    for event, one in zip(events, made, strict=True):
        if isinstance(one, Exception):
            outcomes.append(_failed("", one))
            continue
        ruled = next(rulings)
        value = event.value if isinstance(event, StateEvent) else event[2]
        outcome = _outcome(newest, one, None if value is deleted else value, ruled)
        outcomes.append(outcome)
        if heard[ruled.ruling]:
            name = EVENTS[ruled.ruling]
            engine.bus.emit(Event(name=name, key=one.entity, scope=one.scope, reason=outcome.reason))
    return outcomes


EVENTS: Final = {
    Ruling.APPLIED: "applied",
    Ruling.DUPLICATE_MESSAGE: "skipped",
    Ruling.DUPLICATE_EVENT: "skipped",
    Ruling.STALE: "stale",
    Ruling.MISMATCH: "mismatch",
    Ruling.PARKED: "parked",
    Ruling.SKEW: "failed",
}


def _outcome(newest: Newest, one: Delivery, value: Any, ruled: Ruled) -> Outcome[Any]:
    ruling = ruled.ruling
    if ruling is Ruling.APPLIED:
        return Executed(key=one.entity, value=value, reason="applied", conflict=ruled.conflict)
    if ruling is Ruling.STALE:
        return Stale(key=one.entity, reason="stale_event_ignored", conflict=ruled.conflict)
    if ruling is Ruling.DUPLICATE_MESSAGE or ruling is Ruling.DUPLICATE_EVENT:
        reason = f"{ruling.value}_{'newer' if ruled.applied else 'noop'}"
        return Replayed(key=one.entity, value=value, reason=reason, applied=ruled.applied, conflict=ruled.conflict)
    if ruling is Ruling.MISMATCH:
        return Mismatch(key=one.entity)
    if ruling is Ruling.PARKED:
        return _parked(newest, one)
    skew = VersionSkew(
        "the entity was written by a newer Onceward; left alone", key=one.entity, hint="upgrade this process"
    )
    return _failed(one.entity, skew)


def _parked(newest: Newest, one: Delivery) -> Outcome[Any]:
    said = f"its time is more than {readable(newest.ahead or 0)} ahead of the store's"
    error = OutcomeParked(
        f"the event was put aside: {said}",
        key=one.entity,
        hint="nothing of it was kept: look at its producer's clock, and deliver it again later, or drop it",
    )
    return Parked(key=one.entity, reason="future_event_parked", error_type="FutureEvent", error=said, exception=error)


def _failed(key: str, error: Exception) -> Outcome[Any]:
    return Failed(key=key, error_type=type(error).__qualname__, error=message_of(error), final=True, exception=error)
