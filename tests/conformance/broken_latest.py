"""Stores whose guard against old events is broken on purpose, with mistakes that real systems have shipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from onceward.protocol.latest import (
    DedupMark,
    EntityState,
    EventDelivery,
    LatestDecision,
    LatestResult,
    Retention,
    decide,
)
from onceward.protocol.ordering import CONTENT_BYTES, content_of
from onceward.stores.memory.store import MemoryStore
from tests.conformance.broken_ways import Hesitant

TIME = 11  # bytes of an event time in an order


class Stepwise(MemoryStore):
    """The rule written again in steps that can be altered one by one."""

    def _apply_events(self, deliveries: Sequence[EventDelivery], keep: Retention) -> list[LatestResult]:
        now = self._clock.now()
        self.sweep(deliveries, now)
        return [self.one(delivery, keep, now) for delivery in deliveries]

    def one(self, given: EventDelivery, keep: Retention, now: int) -> LatestResult:
        message, event = self.known(given.message, now), self.known(given.event, now)
        if message is not None:
            other = self.is_another(message, given)
            return LatestResult(LatestDecision.MISMATCH if other else LatestDecision.DUPLICATE_MESSAGE)
        if self.is_early(given, now):
            return LatestResult(LatestDecision.PARKED)
        if event is not None and self.is_another_event(event, given):
            return LatestResult(LatestDecision.EVENT_MISMATCH)
        [state] = self._latest([given.id], now)
        before = None if state is None else state.order
        moves = before is None or self.is_newer(given.order, before)
        name = self.decision_of(given, before, event=event, moves=moves)
        if self.claims(name):
            self.remember(given, keep, now)
        if moves and self.passes(name):
            self.put(given, keep, now)
        new = name is not LatestDecision.DUPLICATE_EVENT
        conflict = (
            before is not None and before != given.order and before[:-CONTENT_BYTES] == given.order[:-CONTENT_BYTES]
        )
        return LatestResult(name, applied=moves and new, conflict=conflict and new)

    def decision_of(
        self, given: EventDelivery, before: bytes | None, *, event: DedupMark | None, moves: bool
    ) -> LatestDecision:
        if event is not None:
            return LatestDecision.DUPLICATE_EVENT
        if moves:
            return LatestDecision.APPLIED
        return LatestDecision.DUPLICATE_MESSAGE if given.order == before else LatestDecision.STALE

    def known(self, id: bytes, now: int) -> DedupMark | None:
        mark = self._marks.get(id)
        return mark if mark is not None and now < mark.expires_at else None

    def is_another(self, mark: DedupMark, given: EventDelivery) -> bool:
        return mark.content != content_of(given.order)

    def is_another_event(self, mark: DedupMark, given: EventDelivery) -> bool:
        return mark.content != content_of(given.order)

    def is_early(self, given: EventDelivery, now: int) -> bool:
        return now < given.not_before

    def is_newer(self, order: bytes, before: bytes) -> bool:
        return order > before

    def claims(self, name: LatestDecision) -> bool:
        return True

    def passes(self, name: LatestDecision) -> bool:
        return name is not LatestDecision.DUPLICATE_EVENT

    def remember(self, given: EventDelivery, keep: Retention, now: int) -> None:
        marks = {id: given for id in (given.message, given.event) if id and self.known(id, now) is None}
        self._write(decide([], {}, {}, now)._replace(marks=marks), keep, now)

    def put(self, given: EventDelivery, keep: Retention, now: int) -> None:
        self._write(decide([], {}, {}, now)._replace(updates={given.id: given}), keep, now)

    def sweep(self, deliveries: Sequence[EventDelivery], now: int) -> None:
        self._expire(4 * len(deliveries), now)


class StepwiseUnaltered(Stepwise):
    """Unaltered: shows that the steps themselves are sound."""


class LastArrivalWins(Stepwise):
    """No guard at all."""

    def is_newer(self, order: bytes, before: bytes) -> bool:
        return True


class ComparesTimestampsOnly(Stepwise):
    """Compares one timestamp, and the last arrival wins a tie."""

    def is_newer(self, order: bytes, before: bytes) -> bool:
        return order[:TIME] >= before[:TIME]


class TiesGoToTheLastArrival(Stepwise):
    """Compares the whole tuple, but not the content."""

    def is_newer(self, order: bytes, before: bytes) -> bool:
        return order[:-CONTENT_BYTES] >= before[:-CONTENT_BYTES]


class ComparesAsText(Stepwise):
    """Compares in the order of a locale, like Lua's `<` or a collation."""

    def is_newer(self, order: bytes, before: bytes) -> bool:
        return order.decode("latin-1").casefold() > before.decode("latin-1").casefold()


class StopsAtNul(Stepwise):
    """Compares orders as C strings."""

    def is_newer(self, order: bytes, before: bytes) -> bool:
        return order.partition(b"\0")[0] > before.partition(b"\0")[0]


class DuplicatesPass(Stepwise):
    """Writes the state for a known event whose message is newer than the state."""

    def passes(self, name: LatestDecision) -> bool:
        return True


class EventsMayChange(Stepwise):
    """Treats a known event as a duplicate, whatever its content."""

    def is_another_event(self, mark: DedupMark, given: EventDelivery) -> bool:
        return False


class RemembersMismatches(Stepwise):
    """Marks the message of an event with other content as known."""

    def one(self, given: EventDelivery, keep: Retention, now: int) -> LatestResult:
        answer = super().one(given, keep, now)
        if answer.decision is LatestDecision.EVENT_MISMATCH:
            self.remember(given, keep, now)
        return answer


class DeletesOutright(Stepwise):
    """Deletes the row of a deleted entity instead of keeping a tombstone."""

    def put(self, given: EventDelivery, keep: Retention, now: int) -> None:
        super().put(given, keep, now)
        if given.value is None:
            del self._entity_states[given.id]


class StaleEventsSetNoMark(Stepwise):
    """Marks only applied events as known."""

    def claims(self, name: LatestDecision) -> bool:
        return name is not LatestDecision.STALE


class IgnoresOtherContent(Stepwise):
    """Treats a known message as a duplicate, whatever its content."""

    def is_another(self, mark: DedupMark, given: EventDelivery) -> bool:
        return False


class SharesMessages(Stepwise):
    """Identifies a message by its id alone, not by its entity."""

    def one(self, given: EventDelivery, keep: Retention, now: int) -> LatestResult:
        return super().one(replace(given, message=given.trace.encode()), keep, now)


class OneTierOnly(Stepwise):
    """Deduplicates messages, not events."""

    def one(self, given: EventDelivery, keep: Retention, now: int) -> LatestResult:
        return super().one(replace(given, event=b""), keep, now)


class RepeatedEventIsStale(Stepwise):
    """Treats a repeated event without an id as an old one."""

    def decision_of(self, given: EventDelivery, before: bytes | None, **known: Any) -> LatestDecision:
        name = super().decision_of(given, before, **known)
        return LatestDecision.STALE if name is LatestDecision.DUPLICATE_MESSAGE and not given.message else name


class AppliesTheFuture(Stepwise):
    """Applies events of the future, so that one wrong clock freezes an entity."""

    def is_early(self, given: EventDelivery, now: int) -> bool:
        return False


class MarksWhatItParks(Stepwise):
    """Marks a parked event as known, so that its next delivery counts as a duplicate."""

    def one(self, given: EventDelivery, keep: Retention, now: int) -> LatestResult:
        if self.is_early(given, now):
            self.remember(given, keep, now)
            return LatestResult(LatestDecision.PARKED)
        return super().one(given, keep, now)


class NeverExpiresMarks(Stepwise):
    """Keeps the marks of messages and events without limit."""

    def remember(self, given: EventDelivery, keep: Retention, now: int) -> None:
        super().remember(given, replace(keep, marks=10**15), now)


class NeverExpiresTombstones(Stepwise):
    """Keeps the tombstones of deleted entities without limit."""

    def put(self, given: EventDelivery, keep: Retention, now: int) -> None:
        super().put(given, replace(keep, deleted=10**15), now)


class ExpiresWhatCameBack(Stepwise):
    """Keeps the expiry of a tombstone on the row of a restored entity."""

    def put(self, given: EventDelivery, keep: Retention, now: int) -> None:
        before = self._entity_states.get(given.id)
        super().put(given, keep, now)
        if before is not None and before.expires_at is not None:
            self._entity_states[given.id] = replace(self._entity_states[given.id], expires_at=before.expires_at)


class NeverSweeps(Stepwise):
    """Deletes expired rows only when purge is called."""

    def sweep(self, deliveries: Sequence[EventDelivery], now: int) -> None: ...


class IgnoresEarlierEventsOfTheBatch(MemoryStore):
    """Decides a whole batch by the state before it, so that the last event written wins."""

    def _apply_events(self, deliveries: Sequence[EventDelivery], keep: Retention) -> list[LatestResult]:
        now = self._clock.now()
        orders = {one.id: one.order for one in self._latest([each.id for each in deliveries], now) if one}
        marks = {id: mark.content for id, mark in self._marks.items() if now < mark.expires_at}
        decisions = [decide([each], dict(orders), dict(marks), now) for each in deliveries]
        for one in decisions:
            self._write(one, keep, now)
        return [one.answers[0] for one in decisions]


class AnswersByEntity(MemoryStore):
    """Groups the deliveries by entity, and returns the answers in that order."""

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        return await super().apply_events(sorted(deliveries, key=lambda one: one.id), keep, timeout=timeout)


class ReadsOnlyTheFirstPage(MemoryStore):
    """Reads one page of rows, and never the next."""

    async def read_latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        found = await super().read_latest(ids[:500], timeout=timeout)
        return found + [None] * (len(ids) - len(found))


class ListsAllScopes(MemoryStore):
    """Lists the entities of all scopes."""

    def _entities(self, scope: str, after: bytes, limit: int) -> list[EntityState]:
        found = [one for one in self._entity_states.values() if one.value is not None and one.id > after]
        return sorted(found, key=lambda one: one.id)[:limit]


class ListsDeletedEntities(MemoryStore):
    """Also lists deleted entities."""

    def _entities(self, scope: str, after: bytes, limit: int) -> list[EntityState]:
        found = [one for one in self._entity_states.values() if one.scope == scope and one.id > after]
        return sorted(found, key=lambda one: one.id)[:limit]


class ListsAsWritten(MemoryStore):
    """Lists in the order of writing, so that the next page cannot continue by id."""

    def _entities(self, scope: str, after: bytes, limit: int) -> list[EntityState]:
        found = [one for one in self._entity_states.values() if one.scope == scope and one.value is not None]
        return [one for one in found if one.id > after][:limit]


class ShowsWhatHasExpired(MemoryStore):
    """Returns expired marks until they are deleted."""

    def _find_marks(self, ids: Sequence[bytes], now: int) -> list[DedupMark | None]:
        return super()._find_marks(ids, 0)


class LooksThenWrites(Hesitant):
    """Reads, pauses and writes, without a lock."""

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        now = self._clock.now()
        orders = {one.id: one.order for one in self._latest([each.id for each in deliveries], now) if one}
        marks = {id: mark.content for id, mark in tuple(self._marks.items()) if now < mark.expires_at}
        decisions = decide(deliveries, orders, marks, now)
        await self.hesitate()
        self._write(decisions, keep, now)
        return decisions.answers
