"""Stores whose guard against old events is broken on purpose, each in a way that somebody has really shipped."""

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


class Spelled(MemoryStore):
    """The rule once more, in steps that can be altered one by one."""

    def _apply_events(self, deliveries: Sequence[EventDelivery], keep: Retention) -> list[LatestResult]:
        now = self._clock.now()
        self.sweep(deliveries, now)
        return [self.one(delivery, keep, now) for delivery in deliveries]

    def one(self, given: EventDelivery, keep: Retention, now: int) -> LatestResult:
        message, event = self.known(given.message, now), self.known(given.event, now)
        if message is not None and self.is_another(message, given):
            return LatestResult(LatestDecision.MISMATCH)
        if message is None and self.is_early(given, now):
            return LatestResult(LatestDecision.PARKED)
        [standing] = self._latest([given.id], now)
        before = None if standing is None else standing.order
        moves = before is None or self.is_newer(given.order, before)
        name = self.called(given, before, message=message, event=event, moves=moves)
        if message is None and self.claims(name):
            self.remember(given, keep, now)
        if moves and self.passes(name):
            self.put(given, keep, now)
        conflict = (
            before is not None and before != given.order and before[:-CONTENT_BYTES] == given.order[:-CONTENT_BYTES]
        )
        news = before is None or name is LatestDecision.APPLIED or content_of(before) != content_of(given.order)
        return LatestResult(name, applied=moves and news, conflict=conflict)

    def called(
        self,
        given: EventDelivery,
        before: bytes | None,
        *,
        message: DedupMark | None,
        event: DedupMark | None,
        moves: bool,
    ) -> LatestDecision:
        if message is not None:
            return LatestDecision.DUPLICATE_MESSAGE
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

    def is_early(self, given: EventDelivery, now: int) -> bool:
        return now < given.not_before

    def is_newer(self, order: bytes, before: bytes) -> bool:
        return order > before

    def claims(self, name: LatestDecision) -> bool:
        return True

    def passes(self, name: LatestDecision) -> bool:
        return True

    def remember(self, given: EventDelivery, keep: Retention, now: int) -> None:
        marks = {id: given for id in (given.message, given.event) if id and self.known(id, now) is None}
        self._write(decide([], {}, {}, now)._replace(marks=marks), keep, now)

    def put(self, given: EventDelivery, keep: Retention, now: int) -> None:
        self._write(decide([], {}, {}, now)._replace(updates={given.id: given}), keep, now)

    def sweep(self, deliveries: Sequence[EventDelivery], now: int) -> None:
        self._expire(4 * len(deliveries), now)


class SpelledRightly(Spelled):
    """As it should be: shows that the steps themselves are sound."""


class LastArrivalWins(Spelled):
    """No guard at all."""

    def is_newer(self, order: bytes, before: bytes) -> bool:
        return True


class ComparesTimestampsOnly(Spelled):
    """One timestamp decides, and the last arrival wins a tie."""

    def is_newer(self, order: bytes, before: bytes) -> bool:
        return order[:TIME] >= before[:TIME]


class TiesGoToTheLastArrival(Spelled):
    """The whole tuple decides, but not the content."""

    def is_newer(self, order: bytes, before: bytes) -> bool:
        return order[:-CONTENT_BYTES] >= before[:-CONTENT_BYTES]


class ComparesAsText(Spelled):
    """In the order of a language, as Lua's `<` or a collation does."""

    def is_newer(self, order: bytes, before: bytes) -> bool:
        return order.decode("latin-1").casefold() > before.decode("latin-1").casefold()


class StopsAtNul(Spelled):
    """Orders as C strings."""

    def is_newer(self, order: bytes, before: bytes) -> bool:
        return order.partition(b"\0")[0] > before.partition(b"\0")[0]


class DuplicatesDoNotPass(Spelled):
    """Dedupe decides about the state: an event that is known is dropped, however new its message is."""

    def passes(self, name: LatestDecision) -> bool:
        return name not in (LatestDecision.DUPLICATE_EVENT, LatestDecision.DUPLICATE_MESSAGE)


class DeletesOutright(Spelled):
    """A deleted entity leaves nothing behind."""

    def put(self, given: EventDelivery, keep: Retention, now: int) -> None:
        super().put(given, keep, now)
        if given.value is None:
            del self._entity_states[given.id]


class StaleEventsClaimNothing(Spelled):
    """Only what was applied is remembered."""

    def claims(self, name: LatestDecision) -> bool:
        return name is not LatestDecision.STALE


class IgnoresOtherContent(Spelled):
    """A known message is a duplicate, whatever it says."""

    def is_another(self, mark: DedupMark, given: EventDelivery) -> bool:
        return False


class SharesMessages(Spelled):
    """Known by the message id alone, whichever entity it is about."""

    def one(self, given: EventDelivery, keep: Retention, now: int) -> LatestResult:
        return super().one(replace(given, message=given.trace.encode()), keep, now)


class OneTierOnly(Spelled):
    """Knows messages, not events."""

    def one(self, given: EventDelivery, keep: Retention, now: int) -> LatestResult:
        return super().one(replace(given, event=b""), keep, now)


class TheSameAgainIsStale(Spelled):
    """An event without an id that comes twice is taken for an old one."""

    def called(self, given: EventDelivery, before: bytes | None, **known: Any) -> LatestDecision:
        name = super().called(given, before, **known)
        return LatestDecision.STALE if name is LatestDecision.DUPLICATE_MESSAGE and not given.message else name


class AppliesTheFuture(Spelled):
    """One broken clock freezes an entity."""

    def is_early(self, given: EventDelivery, now: int) -> bool:
        return False


class ClaimsWhatItParks(Spelled):
    """So that the event is taken for known when it is delivered again."""

    def one(self, given: EventDelivery, keep: Retention, now: int) -> LatestResult:
        if self.is_early(given, now):
            self.remember(given, keep, now)
            return LatestResult(LatestDecision.PARKED)
        return super().one(given, keep, now)


class KeepsMarksForEver(Spelled):
    """As if nobody had thought of the years."""

    def remember(self, given: EventDelivery, keep: Retention, now: int) -> None:
        super().remember(given, replace(keep, marks=10**15), now)


class KeepsDeletedForEver(Spelled):
    """What was deleted once can never come back by an older event, in no year."""

    def put(self, given: EventDelivery, keep: Retention, now: int) -> None:
        super().put(given, replace(keep, deleted=10**15), now)


class ExpiresWhatCameBack(Spelled):
    """The end of a deleted entity stays on its row when it lives again."""

    def put(self, given: EventDelivery, keep: Retention, now: int) -> None:
        before = self._entity_states.get(given.id)
        super().put(given, keep, now)
        if before is not None and before.expires_at is not None:
            self._entity_states[given.id] = replace(self._entity_states[given.id], expires_at=before.expires_at)


class NeverSweeps(Spelled):
    """Waits for somebody to call for a purge."""

    def sweep(self, deliveries: Sequence[EventDelivery], now: int) -> None: ...


class JudgesByWhatWasThereBefore(MemoryStore):
    """Judges a whole batch by the state before it, so that the last one written wins."""

    def _apply_events(self, deliveries: Sequence[EventDelivery], keep: Retention) -> list[LatestResult]:
        now = self._clock.now()
        orders = {one.id: one.order for one in self._latest([each.id for each in deliveries], now) if one}
        marks = {id: mark.content for id, mark in self._marks.items() if now < mark.expires_at}
        judged = [decide([each], dict(orders), dict(marks), now) for each in deliveries]
        for one in judged:
            self._write(one, keep, now)
        return [one.answers[0] for one in judged]


class AnswersByEntity(MemoryStore):
    """Groups the deliveries, and forgets in which order they came."""

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        return await super().apply_events(sorted(deliveries, key=lambda one: one.id), keep, timeout=timeout)


class LooksAtTheFirstThousand(MemoryStore):
    """A page of rows, and nobody asks for the next."""

    async def latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        found = await super().latest(ids[:500], timeout=timeout)
        return found + [None] * (len(ids) - len(found))


class ListsEverybodys(MemoryStore):
    """Whoever asks is shown the entities of all."""

    def _entities(self, scope: str, after: bytes, limit: int) -> list[EntityState]:
        found = [one for one in self._entity_states.values() if one.value is not None and one.id > after]
        return sorted(found, key=lambda one: one.id)[:limit]


class ListsTheDead(MemoryStore):
    """What was deleted is listed, too."""

    def _entities(self, scope: str, after: bytes, limit: int) -> list[EntityState]:
        found = [one for one in self._entity_states.values() if one.scope == scope and one.id > after]
        return sorted(found, key=lambda one: one.id)[:limit]


class ListsAsWritten(MemoryStore):
    """Pages in the order of writing, which no id can continue."""

    def _entities(self, scope: str, after: bytes, limit: int) -> list[EntityState]:
        found = [one for one in self._entity_states.values() if one.scope == scope and one.value is not None]
        return [one for one in found if one.id > after][:limit]


class ShowsWhatHasExpired(MemoryStore):
    """A mark is shown until somebody sweeps it away."""

    def _find_marks(self, ids: Sequence[bytes], now: int) -> list[DedupMark | None]:
        return super()._find_marks(ids, 0)


class LooksThenWrites(Hesitant):
    """Looks, thinks, and writes, without holding anything meanwhile."""

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
