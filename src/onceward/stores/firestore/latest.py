"""The latest state of entities: one document per mark and per state, written atomically.

    read      read the marks and the states of a batch, and with them the server's time
    decide    `protocol.latest.decide`
    write     in one commit, each document only if it still has the version that was read
    retry     if another writer was faster: entity by entity, until the commit succeeds

An event costs at most three reads and three writes: its message, the event itself, and the state.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from onceward.errors import ConfigurationError
from onceward.protocol.latest import EntityState, EventDelivery, LatestDecisions, LatestResult, Retention, decide
from onceward.protocol.runtime import Runtime

from . import errors as faults
from . import values
from .cache import Now
from .calls import MAX_CALL_BYTES, READS_PER_CALL, FoundDocument, where
from .documents import Changes
from .errors import FirestoreError
from .latest_documents import MAX_SHOWN_BYTES, DocumentPath, LatestDocuments
from .names import hash_name

INITIAL_PAUSE, MAX_PAUSE = 0.01, 0.25  # seconds before a commit that lost a race is retried
MAX_BATCH: Final = 60
"""Deliveries per commit: about two hundred documents."""

OVERHEAD_BYTES: Final = 4096
"""Size of the marks and of everything else except the value."""


class DocumentsRead(NamedTuple):
    """The documents that were read, and the server's time."""

    found: Mapping[DocumentPath, FoundDocument]
    now: int


def decide_deliveries(
    states: LatestDocuments, deliveries: Sequence[EventDelivery], documents: DocumentsRead
) -> LatestDecisions:
    """Decide about the deliveries, given the documents that were read."""
    orders: dict[bytes, bytes] = {}
    marks: dict[bytes, bytes] = {}
    closed: set[bytes] = set()
    for one in deliveries:
        there = documents.found.get(states.state_path(one))
        if there is not None and one.id not in orders:
            if states.is_newer_version(there.fields):
                closed.add(one.id)
                continue
            current = states.state(there.fields)
            if current.id != one.id:
                raise ConfigurationError(
                    f"{states.calls.name}: the document {there.name!r} is the state of {current.scope}",
                    key=one.entity,
                    hint="use a separate collection for each state, or omit ids=entity",
                )
            if current.expires_at is None or current.expires_at > documents.now:
                orders[one.id] = current.order
        for mark in (one.message, one.event):
            content = states.known_content(mark, one, documents.found, documents.now) if mark else None
            if content is not None:
                marks[mark] = content
    return decide(deliveries, orders, marks, documents.now, closed)


def changes_for(
    states: LatestDocuments,
    decisions: LatestDecisions,
    documents: DocumentsRead,
    keep: Retention,
    deliveries: Sequence[EventDelivery],
) -> dict[DocumentPath, Changes]:
    """Return the changes of documents that follow from the decisions."""
    changes: dict[DocumentPath, Changes] = {}
    entities = {one.id: states.state_path(one) for one in deliveries}
    for id, one in decisions.updates.items():
        changes[entities[id]] = states.state_changes(one, keep, documents.now)
    for mark, one in decisions.marks.items():
        changes[states.mark_path(mark, one, documents.found)] = states.mark_changes(mark, one, keep, documents.now)
    return changes


class FirestoreLatest:
    """Applies deliveries to states, outside a caller's transaction."""

    def __init__(self, states: LatestDocuments, runtime: Runtime, clock: Now) -> None:
        self.states = states
        self._calls = states.calls
        self._runtime = runtime
        self._clock = clock

    async def apply(self, deliveries: Sequence[EventDelivery], keep: Retention, deadline: float) -> list[LatestResult]:
        """Apply deliveries in batches of one commit each. An entity is never split over two batches."""
        answers: dict[int, LatestResult] = {}
        for places in split_batches(deliveries):
            some = [deliveries[place] for place in places]
            answers.update(zip(places, await self._apply_batch(some, keep, deadline), strict=True))
        return [answers[place] for place in range(len(deliveries))]

    async def _apply_batch(
        self, deliveries: Sequence[EventDelivery], keep: Retention, deadline: float
    ) -> list[LatestResult]:
        entities: dict[bytes, list[int]] = {}
        for place, one in enumerate(deliveries):
            entities.setdefault(one.id, []).append(place)
        if len(entities) > 1:
            results = await self._try_apply(deliveries, keep, deadline)
            if results is not None:
                return results
        answers: dict[int, LatestResult] = {}
        for places in entities.values():
            some = [deliveries[place] for place in places]
            answers.update(zip(places, await self._apply_entity(some, keep, deadline), strict=True))
        return [answers[place] for place in range(len(deliveries))]

    async def _apply_entity(
        self, deliveries: Sequence[EventDelivery], keep: Retention, deadline: float
    ) -> list[LatestResult]:
        """Apply the deliveries of one entity, retrying while other writers interfere.

        A lost reply is not retried: the marks would report the repetition as a duplicate.
        """
        pause = INITIAL_PAUSE
        while True:
            results = await self._try_apply(deliveries, keep, deadline)
            if results is not None:
                return results
            if time.monotonic() + pause >= deadline:
                raise faults.error_for(FirestoreError("ABORTED", "until the end of this call"), self._calls.name)
            await self._runtime.sleep(pause * (0.5 + self._runtime.jitter()))
            pause = min(2 * pause, MAX_PAUSE)

    async def _try_apply(
        self, deliveries: Sequence[EventDelivery], keep: Retention, deadline: float
    ) -> list[LatestResult] | None:
        """Read, decide and write once. Return None if another writer was faster."""
        states = self.states
        try:
            found, now = await self._calls.get(states.paths_for(deliveries), deadline)
            documents = DocumentsRead(found, self._clock() or now)
            decisions = decide_deliveries(states, deliveries, documents)
            changes = changes_for(states, decisions, documents, keep, deliveries)
            if changes:
                batch = [self._build_write(place, one, found.get(place)) for place, one in changes.items()]
                await self._calls.commit(batch, deadline)
        except FirestoreError as error:
            if error.code in faults.CONFLICT_CODES:
                return None
            raise faults.error_for(error, self._calls.name) from error
        return decisions.answers

    def _build_write(self, place: DocumentPath, changes: Changes, there: FoundDocument | None) -> Any:
        if there is None:
            return self._calls.build_write(*place, changes, None)
        return self._calls.build_write(
            *place, changes, there.version, self.states.removed_members(place, changes, there)
        )

    async def read(self, ids: Sequence[bytes], deadline: float) -> list[EntityState | None]:
        """Read states by the hash of the entity, or by a query if documents are named after entities."""
        states = self.states
        current_states: dict[bytes, EntityState] = {}
        now = 0
        for start in range(0, len(ids), READS_PER_CALL):
            places = {(states.states_in, hash_name(id)): id for id in ids[start : start + READS_PER_CALL]}
            found, now = await self._calls.get(places, deadline)
            current_states |= {places[place]: states.state(one.fields) for place, one in found.items()}
        now = self._clock() or now
        if self._calls.address.entity_ids:
            hits = await states.search([id for id in ids if id not in current_states], deadline)
            current_states |= {one.id: one for one in (states.state(hit.fields) for hit in hits)}
        return [
            one if one and (one.expires_at is None or one.expires_at > now) else None
            for one in map(current_states.get, ids)
        ]

    async def expire(self, limit: int, deadline: float) -> int:
        """Delete expired documents, for databases without a TTL policy, if they still have the version read."""
        expired = 0
        for collection in (self.states.marks_in, self.states.states_in):
            if expired < limit:
                expired += await self._expire(collection, limit - expired, deadline)
        return expired

    async def _expire(self, collection: str, limit: int, deadline: float) -> int:
        now = self._clock()
        if now is None:
            _, now = await self._calls.get([(collection, "clock")], deadline)
        condition = where(self.states.expiry, "LESS_THAN_OR_EQUAL", values.time(now))
        old, _ = await self._calls.query(collection, deadline, where=condition, limit=min(limit, READS_PER_CALL))
        if not old:
            return 0
        batch = [self._calls.build_delete(collection, one.name, one.version) for one in old]
        return sum(code == "OK" for code, _ in await self._calls.write_each(batch, deadline))


def split_batches(deliveries: Sequence[EventDelivery]) -> Iterable[list[int]]:
    """Yield the positions of deliveries that fit into one call. An entity with many deliveries is not split."""
    entities: dict[bytes, list[int]] = {}
    for place, one in enumerate(deliveries):
        entities.setdefault(one.id, []).append(place)
    batch: list[int] = []
    size = 0
    for places in entities.values():
        weight = max(_size(deliveries[place]) for place in places)  # only one value per entity is written
        if batch and (len(batch) + len(places) > MAX_BATCH or size + weight > MAX_CALL_BYTES):
            yield sorted(batch)
            batch, size = [], 0
        batch += places
        size += weight
    if batch:
        yield sorted(batch)


def _size(one: EventDelivery) -> int:
    """Return the approximate size of a delivery's writes: the value, its members, the marks."""
    value = len(one.value or b"")
    return value + min(value, MAX_SHOWN_BYTES) + OVERHEAD_BYTES
