"""Stores that are broken on purpose, each in one way that somebody's store once was. The kit must catch every one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from onceward.model import transitions
from onceward.model.record import (
    NOBODY,
    Answer,
    ClaimRequest,
    Complete,
    Fail,
    Park,
    Record,
    Release,
    Renewal,
    Resolve,
    State,
    Verdict,
)
from onceward.ports import AnySettlement, Filter, Page
from onceward.stores.memory import MemoryStore

A_MOMENT = 0.002
"""Between a look and a write that ought to be one step."""

Applied = tuple[Record | None, Verdict]


class Altered(MemoryStore):
    """A MemoryStore whose state table may be altered: the methods below stand where `model.transitions` should."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        return transitions.claim(record, request, now)

    def on_renew(self, record: Record | None, request: Renewal, now: int) -> Applied:
        return transitions.renew(record, request, now)

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        return transitions.settle(record, request, now)

    def _claim(self, request: ClaimRequest, now: int) -> Answer:
        return self._alter(self.on_claim, request, now)

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        with self._exclusive():
            return [self._alter(self.on_renew, one, self._clock.now()) for one in renewals]

    async def settle(self, settlements: Sequence[AnySettlement], *, timeout: float) -> list[Answer]:
        with self._exclusive():
            answers = [self._alter(self.on_settle, one, self._clock.now()) for one in settlements]
        self.wake(one.id for one in settlements)
        return answers

    def _alter(self, change: Callable[[Record | None, Any, int], Applied], request: Any, now: int) -> Answer:
        record, verdict = change(self._records.get(request.id), request, now)
        if record is None:
            self._records.pop(request.id, None)
        self._put(record)
        return Answer(verdict, record, now)


def lapsed(record: Record | None, now: int) -> Record | None:
    return record and replace(record, lease_until=now)


class BlindTakeOver(Altered):
    """Takes over live leases."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        live = transitions.row_of(record, now) is transitions.Row.LIVE
        return super().on_claim(lapsed(record, now) if live else record, request, now)


class MissingLeaseIsFree(Altered):
    """Takes a record without a lease for one whose lease is over."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        without = record is not None and record.state is State.PENDING and record.lease_until is None
        return super().on_claim(lapsed(record, now) if without else record, request, now)


class CompletesForAnybody(Altered):
    """Does not compare token and nonce on completion."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        if record is not None and isinstance(request, Complete):
            request = replace(request, token=record.token, nonce=record.nonce)
        return super().on_settle(record, request, now)


class RenewsForAnybody(Altered):
    """Extends whoever's lease it is."""

    def on_renew(self, record: Record | None, request: Renewal, now: int) -> Applied:
        return super().on_renew(record, replace(request, token=record.token, nonce=record.nonce) if record else request, now)


class IgnoresTheNonceOfOwners(Altered):
    """Believes everybody who knows the token."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        if record is not None and not isinstance(request, Resolve):
            request = replace(request, nonce=record.nonce)
        return super().on_settle(record, request, now)


class RefusesLateOwners(Altered):
    """Compares time on settlement, though nobody has replaced the owner."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        if transitions.row_of(record, now) is transitions.Row.LAPSED:
            return record, Verdict.LOST
        return super().on_settle(record, request, now)


class FailureDeletes(Altered):
    """Deletes the record when the attempt fails."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        after, verdict = super().on_settle(record, request, now)
        return (None if isinstance(request, Fail) and verdict is Verdict.OK else after), verdict


class ReleaseDeletes(Altered):
    """Deletes the record when the owner hands it back, and the token with it."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        after, verdict = super().on_settle(record, request, now)
        return (None if isinstance(request, Release) and verdict is Verdict.OK else after), verdict


class LosesFalsyResults(Altered):
    """Lets truthiness decide what is stored."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        if isinstance(request, Complete):
            request = replace(request, result=request.result or None)
        return super().on_settle(record, request, now)


class ForgetsThatNothingWasKept(Altered):
    """Replays "not stored" as a result of None."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        return super().on_settle(record, replace(request, stored=True) if isinstance(request, Complete) else request, now)


class LosesThePayloadOnCompletion(Altered):
    """Drops the fingerprint when the work is done, so that any payload replays."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        after, verdict = super().on_settle(record, request, now)
        return (replace(after, fingerprint=b"") if after and after.state is State.COMPLETED else after), verdict


class SkipsThePayloadOnTakeOver(Altered):
    """Does not compare the fingerprint of a record whose lease has lapsed."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        if record is not None and transitions.row_of(record, now) is transitions.Row.LAPSED:
            record = replace(record, fingerprint=request.fingerprint)
        return super().on_claim(record, request, now)


class ReplaysExtendNothing(Altered):
    """A sliding window that does not slide."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        after, verdict = super().on_claim(record, request, now)
        return (record if verdict is Verdict.REPLAY else after), verdict


class ReplaysWrite(Altered):
    """Touches the record on every replay."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        after, verdict = super().on_claim(record, request, now)
        return (replace(after) if after and verdict is Verdict.REPLAY else after), verdict


class RegrantIgnoresTheNonce(Altered):
    """Does not recognise its own claim when the reply was lost."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        return super().on_claim(replace(record, nonce=NOBODY) if record else None, request, now)


class RegrantForgetsToAsk(Altered):
    """Repeats a grant without the order to ask first."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        if record is not None and record.nonce == request.nonce:
            record = replace(record, ask_first=False)
        return super().on_claim(record, request, now)


class RegrantIsASecondGrant(Altered):
    """Gives the repeated claim a new token, so that the first reply, should it arrive, is worthless."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        after, verdict = super().on_claim(record, request, now)
        if after is not None and after is record and verdict is Verdict.ACQUIRED:
            after = replace(after, token=after.token + 1)
        return after, verdict


class OverwritesOnConflict(Altered):
    """Lets a second completion replace the first result."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        after, verdict = super().on_settle(record, request, now)
        if after and verdict is Verdict.CONFLICT and isinstance(request, Complete):
            return replace(after, result=request.result, digest=request.digest), Verdict.OK
        return after, verdict


class ParkingCutsOff(Altered):
    """Raises the token when a record is parked, so that its late owner cannot say how it ended."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        after, verdict = super().on_claim(record, request, now)
        if after is not record and after is not None and verdict is Verdict.PARKED:
            after = replace(after, token=after.token + 1)
        return after, verdict


class ResolvesForAnybody(Altered):
    """Resolves whatever the record has become meanwhile."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        if record is not None and isinstance(request, Resolve):
            record, request = replace(record, state=State.PARKED), replace(request, token_seen=record.token)
        return super().on_settle(record, request, now)


class CountsAttemptsOnFailure(Altered):
    """Counts an attempt when it fails, so that crashes do not count."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        after, verdict = super().on_claim(record, request, now)
        if record and after and record.state is State.PENDING and verdict is Verdict.ACQUIRED:
            after = replace(after, attempt=record.attempt)
        return after, verdict


class TakeOverLosesNotes(Altered):
    """Forgets what the earlier owner had noted."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        after, verdict = super().on_claim(record, request, now)
        return (replace(after, note=request.note) if after and verdict is Verdict.ACQUIRED else after), verdict


class IgnoresNewerVersions(Altered):
    """Works on records that a newer version wrote."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        return super().on_claim(record and replace(record, min_reader=0), request, now)


class ParksNobody(Altered):
    """Says that it parked, and does nothing."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        after, verdict = super().on_settle(record, request, now)
        return (record if isinstance(request, Park) else after), verdict


class FloatingTimes(Altered):
    """Keeps times as floating point, like a script or a JSON of other languages."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        after, verdict = super().on_settle(record, request, now)
        if after is not None and after.valid_until is not None:
            after = replace(after, valid_until=int(float(after.valid_until)))
        return after, verdict


class CutsTextAtNul(Altered):
    """Keeps texts as C strings."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        after, verdict = super().on_settle(record, request, now)
        return (replace(after, error=after.error.partition("\0")[0]) if after else None), verdict


class CollatesKeys(Altered):
    """Compares ids as a case-blind collation does."""

    def _claim(self, request: ClaimRequest, now: int) -> Answer:
        return super()._claim(replace(request, id=request.id.lower()), now)


class TokenResetByPurge(Altered):
    """Counts tokens from one, so that a purged key begins again below its zombies."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        after, verdict = super().on_claim(record, request, now)
        if after and verdict is Verdict.ACQUIRED and after is not record:
            after = replace(after, token=1 if record is None else record.token + 1)
        return after, verdict


class TokenIsTheTime(Altered):
    """Takes the clock alone for the token, though it may be set back."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        after, verdict = super().on_claim(record, request, now)
        return (replace(after, token=now) if after and after is not record and verdict is Verdict.ACQUIRED else after), verdict


class GetThenPut(MemoryStore):
    """Looks, thinks, and writes, without holding anything meanwhile."""

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        now = self._clock.now()
        seen = {request.id: self._records.get(request.id) for request in requests}
        time.sleep(A_MOMENT)
        steps = [transitions.claim(seen[request.id], request, now) for request in requests]
        for record, _ in steps:
            self._put(record)
        return [Answer(verdict, record, now) for record, verdict in steps]


class BatchJoinsOnTheKeyAlone(MemoryStore):
    """Judges a whole batch by what was there before it, so that two requests for one key both win."""

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        with self._exclusive():
            now = self._clock.now()
            steps = [transitions.claim(self._records.get(request.id), request, now) for request in requests]
            for record, _ in steps:
                self._put(record)
        return [Answer(verdict, record, now) for record, verdict in steps]


class AnswersInKeyOrder(MemoryStore):
    """Sorts a batch against deadlocks, and forgets to sort the answers back."""

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        return await super().claim(sorted(requests, key=lambda one: one.id), timeout=timeout)


class PurgesYoungTokens(MemoryStore):
    """Knows no margin for clocks that are set back."""

    async def purge(self, limit: int, *, timeout: float) -> int:
        now = self._clock.now()
        gone = [id for id, record in self._records.items() if transitions.row_of(record, now) in transitions.STARTS_AFRESH]
        for id in gone[:limit]:
            del self._records[id]
        return len(gone[:limit])


class PurgesByAge(MemoryStore):
    """Deletes whatever nobody has touched for a month."""

    async def purge(self, limit: int, *, timeout: float) -> int:
        now = self._clock.now()
        gone = [id for id, record in self._records.items() if record.updated_at < now - transitions.KEEP_UNFINISHED]
        for id in gone[:limit]:
            del self._records[id]
        return len(gone[:limit])


class PurgesNothing(MemoryStore):
    """Grows for ever."""

    async def purge(self, limit: int, *, timeout: float) -> int:
        return 0


class PurgeDecidesThenDeletes(MemoryStore):
    """Chooses what to delete, and deletes it later, whatever has become of it. Sweeps nothing by the way."""

    def _sweep(self, now: int, most: int) -> None: ...

    async def purge(self, limit: int, *, timeout: float) -> int:
        now = self._clock.now()
        gone = [id for id, record in list(self._records.items()) if transitions.purgeable(record, now)][:limit]
        time.sleep(A_MOMENT)
        return sum(self._records.pop(id, None) is not None for id in gone)


class ForgetDeletes(MemoryStore):
    """Forgets the token too."""

    async def forget(self, ids: Sequence[bytes], *, force: bool, timeout: float) -> list[Answer]:
        answers = await super().forget(ids, force=force, timeout=timeout)
        for id, answer in zip(ids, answers, strict=True):
            if answer.verdict is Verdict.OK:
                self._records.pop(id, None)
        return answers


class ForgetsTheLiving(MemoryStore):
    """Forgets what is being worked on, forced or not."""

    async def forget(self, ids: Sequence[bytes], *, force: bool, timeout: float) -> list[Answer]:
        return await super().forget(ids, force=True, timeout=timeout)


class ScanSkipsAtPageEnds(MemoryStore):
    """Loses the record at each page's end."""

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        page = await super().scan(wanted, cursor=cursor, limit=limit, timeout=timeout)
        return Page(page.records[:-1], page.cursor, page.now) if page.cursor is not None else page


class ScanByOffset(MemoryStore):
    """Counts how far it came, in an order that changes under it."""

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        everything = await super().scan(wanted, cursor=None, limit=len(self._records) + 1, timeout=timeout)
        start = int(cursor or b"0")
        records = sorted(everything.records, key=lambda one: (one.updated_at, one.state, one.id))
        page = records[start : start + limit]
        return Page(page, b"%d" % (start + limit) if len(records) > start + limit else None, everything.now)


class ScanIgnoresAge(MemoryStore):
    """Does not look at `updated_before`."""

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        return await super().scan(replace(wanted, updated_before=None), cursor=cursor, limit=limit, timeout=timeout)


class CountsWithoutScopes(MemoryStore):
    """Counts everybody's records together."""

    async def counts(self, *, timeout: float) -> dict[tuple[str, State], int]:
        counted: dict[tuple[str, State], int] = {}
        for (_, state), number in (await super().counts(timeout=timeout)).items():
            counted["", state] = counted.get(("", state), 0) + number
        return counted


class WakesNobody(MemoryStore):
    """Takes callbacks, and never calls them."""

    def wake(self, ids: object) -> None: ...


class SaysButDoesNotStore(MemoryStore):
    """Answers a renewal without writing it down."""

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        before = dict(self._records)
        answers = await super().renew(renewals, timeout=timeout)
        self._records = before
        return answers


class TwinOfItsOwn(MemoryStore):
    """Gives its keeper a store with nothing in it."""

    def twin(self) -> MemoryStore:
        return MemoryStore(clock=self._clock)


BROKEN = [
    kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, MemoryStore) and kind not in (MemoryStore, Altered)
]
