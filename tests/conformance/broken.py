"""Stores that are broken on purpose, each in one cell of the state table, with mistakes that real stores have made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from onceward.protocol import transitions
from onceward.protocol.record import NO_OWNER, READER, Record, RecordState
from onceward.protocol.requests import (
    Answer,
    AnySettlement,
    ClaimRequest,
    Complete,
    Fail,
    Park,
    Release,
    Renewal,
    Resolve,
    Verdict,
)
from onceward.stores.memory.store import MemoryStore

Applied = tuple[Record | None, Verdict]


class Altered(MemoryStore):
    """A MemoryStore with an alterable state table: the methods below replace `protocol.transitions`."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        return transitions.claim(record, request, now)

    def on_renew(self, record: Record | None, request: Renewal, now: int) -> Applied:
        return transitions.renew(record, request, now)

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        return transitions.settle(record, request, now)

    def _answer(self, request: Any) -> Answer:
        verbs: dict[type, Callable[[Record | None, Any, int], Applied]]
        verbs = {ClaimRequest: self.on_claim, Renewal: self.on_renew}
        change = verbs.get(type(request), self.on_settle)
        with self._write_lock:  # atomic, so that nothing is wrong except what was altered
            now, before = self._clock.now(), self._records.get(request.id)
            record, verdict = change(before, request, now)
            if record is None:
                self._records.pop(request.id, None)
            elif record is not before:
                self._compare_and_set(before, record)
            return Answer(verdict, record, now)


def lapsed(record: Record | None, now: int) -> Record | None:
    return record and replace(record, lease_until=now)


class BlindTakeOver(Altered):
    """Takes over live leases."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        live = transitions.row_of(record, now) is transitions.Row.PENDING_LIVE
        return super().on_claim(lapsed(record, now) if live else record, request, now)


class MissingLeaseIsFree(Altered):
    """Treats a record without a lease like one whose lease has expired."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        without = record is not None and record.state is RecordState.PENDING and record.lease_until is None
        return super().on_claim(lapsed(record, now) if without else record, request, now)


class CompletesUnclaimedKeys(Altered):
    """Writes the result with an upsert."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        if record is None and isinstance(request, Complete):
            record = Record(request.id, "", "", RecordState.PENDING, request.token, request.nonce)
        return super().on_settle(record, request, now)


class CompletesWithoutOwnerCheck(Altered):
    """Does not compare token and nonce on completion."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        if record is not None and isinstance(request, Complete):
            request = replace(request, token=record.token, nonce=record.nonce)
        return super().on_settle(record, request, now)


class RenewsWithoutOwnerCheck(Altered):
    """Does not compare token and nonce on renewal."""

    def on_renew(self, record: Record | None, request: Renewal, now: int) -> Applied:
        return super().on_renew(
            record, replace(request, token=record.token, nonce=record.nonce) if record else request, now
        )


class IgnoresTheNonceOfOwners(Altered):
    """Compares only the token, not the nonce."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        if record is not None and not isinstance(request, Resolve):
            request = replace(request, nonce=record.nonce)
        return super().on_settle(record, request, now)


class RefusesLateOwners(Altered):
    """Refuses a settlement after the lease, although the owner was not replaced."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        if transitions.row_of(record, now) is transitions.Row.PENDING_LAPSED:
            return record, Verdict.LOST
        return super().on_settle(record, request, now)


class FailureDeletes(Altered):
    """Deletes the record when the attempt fails."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        after, verdict = super().on_settle(record, request, now)
        return (None if isinstance(request, Fail) and verdict is Verdict.OK else after), verdict


class ReleaseDeletes(Altered):
    """Deletes the record, and its token, when the owner releases it."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        after, verdict = super().on_settle(record, request, now)
        return (None if isinstance(request, Release) and verdict is Verdict.OK else after), verdict


class LosesFalsyResults(Altered):
    """Stores an empty result as None: it tests for truth instead of None."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        if isinstance(request, Complete):
            request = replace(request, result=request.result or None)
        return super().on_settle(record, request, now)


class ForgetsThatNothingWasKept(Altered):
    """Replays "not stored" as a result of None."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        return super().on_settle(
            record, replace(request, stored=True) if isinstance(request, Complete) else request, now
        )


class LosesThePayloadOnCompletion(Altered):
    """Drops the fingerprint when the work is done, so that any payload replays."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        after, verdict = super().on_settle(record, request, now)
        done = after is not None and after is not record and after.state is RecordState.COMPLETED
        return (replace(after, fingerprint=b"") if after and done else after), verdict


class SkipsThePayloadOnTakeOver(Altered):
    """Does not compare the fingerprint of a record whose lease has expired."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        if record is not None and transitions.row_of(record, now) is transitions.Row.PENDING_LAPSED:
            record = replace(record, fingerprint=request.fingerprint)
        return super().on_claim(record, request, now)


class ReplaysExtendNothing(Altered):
    """A sliding window that does not slide."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        after, verdict = super().on_claim(record, request, now)
        return (record if verdict is Verdict.REPLAY else after), verdict


class AcknowledgesWithoutWriting(Altered):
    """Answers OK to a completion, leaves the record out of the answer, and stores nothing."""

    def _answer(self, request: Any) -> Answer:
        answer = super()._answer(request)
        if not isinstance(request, Complete) or answer.verdict is not Verdict.OK:
            return answer
        return replace(answer, record=None)

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        after, verdict = super().on_settle(record, request, now)
        return (record if isinstance(request, Complete) else after), verdict


class LosesTheNoteOnCompletion(Altered):
    """Completes the record without the note that renewals have added."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        after, verdict = super().on_settle(record, request, now)
        if after is None or after is record or not isinstance(request, Complete):
            return after, verdict
        return replace(after, note=request.note), verdict


class CompletesAgain(Altered):
    """Treats the owner of a completed record as one that has not settled yet."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        if isinstance(request, Complete) and record is not None:
            record = replace(record, state=RecordState.PENDING, released=False)
        return super().on_settle(record, request, now)


class KeepsAnotherEnd(Altered):
    """Stores windows of at most 285 years, and returns the longer end."""

    def _answer(self, request: Any) -> Answer:
        answer = super()._answer(request)
        kept = answer.record
        if kept is not None and isinstance(request, Complete) and (kept.valid_until or 0) > 2**53:
            self._compare_and_set(kept, replace(kept, valid_until=2**53))
        return answer


class ReplaysWrite(Altered):
    """Touches the record on every replay."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        after, verdict = super().on_claim(record, request, now)
        return (replace(after) if after and verdict is Verdict.REPLAY else after), verdict


class RegrantIgnoresTheNonce(Altered):
    """Does not recognise its own claim when the reply was lost."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        return super().on_claim(replace(record, nonce=NO_OWNER) if record else None, request, now)


class RegrantForgetsToAsk(Altered):
    """Repeats a grant without `ask_first`."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        if record is not None and record.nonce == request.nonce:
            record = replace(record, ask_first=False)
        return super().on_claim(record, request, now)


class RegrantIsASecondGrant(Altered):
    """Gives the repeated claim a new token, so that the first reply, if it arrives late, is worthless."""

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
    """Raises the token when a record is parked, so that its late owner cannot report its outcome."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        after, verdict = super().on_claim(record, request, now)
        if after is not record and after is not None and verdict is Verdict.PARKED:
            after = replace(after, token=after.token + 1)
        return after, verdict


class ResolvesAnyState(Altered):
    """Resolves the record whatever its state is now."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        if record is not None and isinstance(request, Resolve):
            record, request = replace(record, state=RecordState.PARKED), replace(request, token_seen=record.token)
        return super().on_settle(record, request, now)


class CountsAttemptsOnFailure(Altered):
    """Counts an attempt when it fails, so that crashes do not count."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        after, verdict = super().on_claim(record, request, now)
        if record and after and record.state is RecordState.PENDING and verdict is Verdict.ACQUIRED:
            after = replace(after, attempt=record.attempt)
        return after, verdict


class TakeOverLosesNotes(Altered):
    """Loses the note of the earlier owner."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        after, verdict = super().on_claim(record, request, now)
        return (replace(after, note=request.note) if after and after is not record else after), verdict


class IgnoresNewerVersions(Altered):
    """Works on records that a newer version wrote."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        newer = record is not None and record.min_reader > READER
        return super().on_claim(replace(record, min_reader=READER) if record and newer else record, request, now)


class ParksNothing(Altered):
    """Answers that it parked, and stores nothing."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        after, verdict = super().on_settle(record, request, now)
        return (record if isinstance(request, Park) else after), verdict


class FloatingTimes(Altered):
    """Stores times as floating point, like a Lua script or JSON."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        after, verdict = super().on_settle(record, request, now)
        if after is not None and after is not record and after.valid_until is not None:
            after = replace(after, valid_until=int(float(after.valid_until)))
        return after, verdict


class CutsTextAtNul(Altered):
    """Stores texts as C strings."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        after, verdict = super().on_settle(record, request, now)
        return (
            replace(after, error=after.error.partition("\0")[0]) if after and after is not record else after
        ), verdict


class TrimsNames(Altered):
    """Strips trailing spaces of names, like a padded column."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        return super().on_claim(record, replace(request, scope=request.scope.rstrip(), key=request.key.rstrip()), now)


class CollatesKeys(Altered):
    """Compares ids with a case-insensitive collation."""

    def _answer(self, request: Any) -> Answer:
        return super()._answer(
            replace(request, id=request.id.lower()) if isinstance(request, ClaimRequest) else request
        )


class TokenResetByPurge(Altered):
    """Counts tokens from one, so that a purged key starts again below the tokens of its former owners."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        after, verdict = super().on_claim(record, request, now)
        if after and verdict is Verdict.ACQUIRED and after is not record:
            after = replace(after, token=1 if record is None else record.token + 1)
        return after, verdict


class TokenIsTheTime(Altered):
    """Takes the token from the clock alone, although the clock may be set back."""

    def on_claim(self, record: Record | None, request: ClaimRequest, now: int) -> Applied:
        after, verdict = super().on_claim(record, request, now)
        return (
            replace(after, token=now) if after and after is not record and verdict is Verdict.ACQUIRED else after
        ), verdict
