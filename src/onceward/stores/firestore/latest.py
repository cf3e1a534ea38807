"""The latest state of entities: one document per mark and per state, written atomically.

    read      read the marks and the states of a batch, and with them the server's time
    decide    `protocol.latest.decide`
    write     in one commit, each document only if it still has the version that was read
    retry     if another writer was faster: entity by entity, until the commit succeeds

An event costs at most three reads and three writes: its message, the event itself, and the state.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from onceward.errors import ConfigurationError
from onceward.protocol.latest import (
    DedupMark,
    EntityState,
    EventDelivery,
    LatestResult,
    Retention,
    decide,
)

from . import values
from .calls import MAX_CALL_BYTES, READS_PER_CALL, FoundDocument, document_at, where
from .documents import Changes
from .errors import CONFLICT_CODES, FirestoreError
from .latest_documents import MAX_SHOWN_BYTES, DocumentPath, LatestDocuments
from .names import hash_name
from .opened import OpenedStore

INITIAL_PAUSE, MAX_PAUSE = 0.01, 0.25  # seconds before a commit that lost a race is retried
MAX_BATCH: Final = 60
"""Deliveries per commit: about two hundred documents."""

OVERHEAD_BYTES: Final = 4096
"""Size of the marks and of everything else except the value."""

Documents = Mapping[DocumentPath, FoundDocument]


def decide_changes(
    states: LatestDocuments, deliveries: Sequence[EventDelivery], found: Documents, now: int, keep: Retention
) -> tuple[list[LatestResult], dict[DocumentPath, Changes]]:
    """Decide the deliveries, given the documents that were read. Return the answers, and the changes of documents."""
    orders: dict[bytes, bytes] = {}
    marks: dict[bytes, bytes] = {}
    closed: set[bytes] = set()
    for one in deliveries:
        there = found.get(states.state_path(one))
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
            if current.expires_at is None or current.expires_at > now:
                orders[one.id] = current.order
        for mark in (one.message, one.event):
            content = states.known_content(mark, one, found, now) if mark else None
            if content is not None:
                marks[mark] = content
    decisions = decide(deliveries, orders, marks, now, closed)
    entities = {one.id: states.state_path(one) for one in deliveries}
    changes = {entities[id]: states.state_changes(one, keep, now) for id, one in decisions.updates.items()}
    for mark, one in decisions.marks.items():
        changes[states.mark_path(mark, one, found)] = states.mark_changes(mark, one, keep, now)
    return decisions.answers, changes


class FirestoreLatest(OpenedStore):
    """The latest states of `FirestoreStore`."""

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        """Apply deliveries in batches of one commit each. An entity is never split over two batches."""
        with self._call(timeout) as deadline:

            async def apply_batch(batch: list[EventDelivery]) -> list[LatestResult]:
                entities = _places_by_entity(batch).values()
                results = await self._try_apply(batch, keep, deadline) if len(entities) > 1 else None
                return await _apply_groups(batch, entities, apply_entity) if results is None else results

            async def apply_entity(batch: list[EventDelivery]) -> list[LatestResult]:
                return await self._apply_entity(batch, keep, deadline)

            return await _apply_groups(deliveries, split_batches(deliveries), apply_batch)

    async def _apply_entity(
        self, deliveries: Sequence[EventDelivery], keep: Retention, deadline: float
    ) -> list[LatestResult]:
        """Apply the deliveries of one entity, retrying while other writers interfere.

        A lost reply is not retried: the marks would report the repetition as a duplicate.
        """
        pause, runtime = INITIAL_PAUSE, self._opened.runtime
        while True:
            results = await self._try_apply(deliveries, keep, deadline)
            if results is not None:
                return results
            if time.monotonic() + pause >= deadline:
                raise FirestoreError("ABORTED", "until the end of this call")
            await runtime.sleep(pause * (0.5 + runtime.jitter()))
            pause = min(2 * pause, MAX_PAUSE)

    async def _try_apply(
        self, deliveries: Sequence[EventDelivery], keep: Retention, deadline: float
    ) -> list[LatestResult] | None:
        """Read, decide and write once. Return None if another writer was faster."""
        states = self._states
        try:
            found, now = await self._calls.get(states.paths_for(deliveries), deadline)
            answers, changes = decide_changes(states, deliveries, found, now, keep)
            if changes:
                batch = [self._build_write(place, one, found.get(place)) for place, one in changes.items()]
                await self._calls.commit(batch, deadline)
        except FirestoreError as error:
            if error.code in CONFLICT_CODES:
                return None
            raise
        return answers

    def _build_write(self, place: DocumentPath, changes: Changes, there: FoundDocument | None) -> Any:
        if there is None:
            return self._calls.build_write(*place, changes, None)
        return self._calls.build_write(
            *place, changes, there.version, self._states.removed_members(place, changes, there)
        )

    async def read_latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        """Read states by the hash of the entity, or by a query if documents are named after entities."""
        with self._call(timeout) as deadline:
            states = self._states
            places = {(states.states_in, hash_name(id)): id for id in ids}
            found, now = await self._calls.get(places, deadline)
            current = {places[place]: states.state(one.fields) for place, one in found.items()}
            if self._calls.address.entity_ids:
                hits = await states.search([id for id in ids if id not in current], deadline)
                current |= {one.id: one for one in (states.state(hit.fields) for hit in hits)}
            return [
                one if one and (one.expires_at is None or one.expires_at > now) else None
                for one in map(current.get, ids)
            ]

    async def entities(
        self, scope: str, *, cursor: bytes | None, limit: int, timeout: float
    ) -> tuple[list[EntityState], bytes | None]:
        """Return a page in the order of document names, which needs no extra index. Each document read is billed."""
        with self._call(timeout) as deadline:
            states = self._states
            condition = where(states.scope_path, "EQUAL", values.text(scope))
            last = None if cursor is None else document_at(cursor)
            page, _ = await self._calls.page(states.states_in, deadline, after=last, limit=limit, where=condition)
            found = [states.state(one.fields) for one in page]
            present = [one for one in found if one.value is not None]
            return present, page[-1].name.encode() if len(page) == limit else None

    async def marks(self, ids: Sequence[bytes], *, timeout: float) -> list[DedupMark | None]:
        with self._call(timeout) as deadline:
            found, now = await self._states.find_marks(ids, deadline)
            return [one if one and now < one.expires_at else None for one in map(found.get, ids)]

    async def expire_latest(self, limit: int, *, timeout: float) -> int:
        """Delete expired documents, for databases without a TTL policy, if they still have the version read."""
        with self._call(timeout) as deadline:
            condition = where(self._states.expiry, "LESS_THAN_OR_EQUAL", values.time(await self._calls.now(deadline)))
            expired = 0
            for collection in (self._states.marks_in, self._states.states_in):
                most = min(limit - expired, READS_PER_CALL)
                if most > 0:
                    old, _ = await self._calls.query(collection, deadline, where=condition, limit=most)
                    expired += await self._calls.delete_each(collection, old, deadline)
            return expired


async def _apply_groups(
    deliveries: Sequence[EventDelivery],
    groups: Iterable[list[int]],
    apply: Callable[[list[EventDelivery]], Awaitable[list[LatestResult]]],
) -> list[LatestResult]:
    """Apply groups of deliveries, given as indexes, and return the results in the order of the deliveries."""
    answers: dict[int, LatestResult] = {}
    for places in groups:
        answers.update(zip(places, await apply([deliveries[place] for place in places]), strict=True))
    return [answers[place] for place in range(len(deliveries))]


def _places_by_entity(deliveries: Sequence[EventDelivery]) -> dict[bytes, list[int]]:
    places: dict[bytes, list[int]] = {}
    for place, one in enumerate(deliveries):
        places.setdefault(one.id, []).append(place)
    return places


def split_batches(deliveries: Sequence[EventDelivery]) -> Iterable[list[int]]:
    """Yield the positions of deliveries that fit into one call. An entity with many deliveries is not split."""
    batch: list[int] = []
    size = 0
    for places in _places_by_entity(deliveries).values():
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
