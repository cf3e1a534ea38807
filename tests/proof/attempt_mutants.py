"""Attempts with one rule broken; everything else is the shipped flow. The search must refute each with a history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from onceward.engine.attempt import (
    ABANDONED,
    LOST,
    OWNED,
    REFUSED,
    SETTLED,
    UNPROTECTED,
    VERIFYING,
)
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Renewal, Verdict

from .attempt_promises import (
    AGAIN,
    ALONE,
    DOUBT,
    EXPLAINED,
    LEGAL,
    LOST_TO,
    NOT_ITSELF,
    RECORDED,
    REPLACED,
    UNBEGUN,
    UNSURE,
)
from .attempt_settlements import BECOMES
from .attempt_steps import AttemptSteps, Move
from .attempt_world import Client, World
from .scenarios import LEASE


class AttemptMutant(NamedTuple):
    """The broken attempt, and what the search must find: in which scenario, and which broken promise."""

    behaviour: type[AttemptSteps]
    scenario: str
    promise: str


class ReleaseAfterRunning(AttemptSteps):
    def interrupted(self, world: World, index: int, client: Client) -> Move:
        return super().interrupted(world, index, client._replace(begun=False))


class ReleaseUnchecked(AttemptSteps):
    """Releases although the work has begun. The check of the release itself is left out, to see the harm."""

    def interrupted(self, world: World, index: int, client: Client) -> Move:
        return self.moved(world, index, "is interrupted", self.to(client, ABANDONED, owes="release"))


class ReleaseInterruptedVerification(AttemptSteps):
    def interrupted(self, world: World, index: int, client: Client) -> Move:
        if client.state is not VERIFYING:
            return super().interrupted(world, index, client)
        return self.moved(world, index, "is interrupted", self.to(client, ABANDONED, owes="release"))


class SettleWithoutToken(AttemptSteps):
    def addressed(self, record: Record | None, request: Any) -> Any:
        if record is None or isinstance(request, Renewal):
            return request
        return replace(request, token=record.token, nonce=record.nonce)


class RenewWithoutToken(AttemptSteps):
    def addressed(self, record: Record | None, request: Any) -> Any:
        if record is None or not isinstance(request, Renewal):
            return request
        return replace(request, token=record.token, nonce=record.nonce)


class NewNonceOnRetry(AttemptSteps):
    def sends_again(self, client: Client) -> Client:
        return client._replace(nonce=client.nonce.rstrip(b"'") + b"'")


class RunsWithoutOwning(AttemptSteps):
    """Starts the work before the answer to its claim."""

    def claim(self, world: World, index: int, client: Client) -> Iterator[Move]:
        yield from super().claim(world, index, client)
        yield self.run_handler(world, index, client)


class RefusalIgnored(AttemptSteps):
    """Goes on as if it owned the key, whatever the store answered."""

    def on_claim_answer(
        self, world: World, index: int, client: Client, verdict: Verdict
    ) -> Iterator[tuple[str, Client]]:
        if verdict in (Verdict.ACQUIRED, Verdict.SETTLED):
            yield from super().on_claim_answer(world, index, client, verdict)
        else:
            yield "", self.to(client, OWNED, ends=world.now + LEASE)


class RefusedAsReplay(AttemptSteps):
    """Reports every refusal as a replay."""

    def on_claim_answer(
        self, world: World, index: int, client: Client, verdict: Verdict
    ) -> Iterator[tuple[str, Client]]:
        for what, after in super().on_claim_answer(world, index, client, verdict):
            yield what, after._replace(refused=Verdict.REPLAY) if after.state is REFUSED else after


class LostReplyIsRefusal(AttemptSteps):
    def claim(self, world: World, index: int, client: Client) -> Iterator[Move]:
        then, _ = self.apply_claim(world, index, client)
        yield self.moved(then, index, "'s claim arrives, the reply is lost", self.on_no_claim_answer(client))

    def on_no_claim_answer(self, client: Client) -> Client:
        return self.to(client, REFUSED, refused=Verdict.RUNNING)


class LostReplyIsSettled(AttemptSteps):
    def on_no_settle_answer(self, client: Client) -> Client:
        return self.to(client, SETTLED, settled_as=BECOMES[type(client.request)])


class LostReplyIsLost(AttemptSteps):
    def on_no_settle_answer(self, client: Client) -> Client:
        return self.to(client, LOST)


class LostIsUnknown(AttemptSteps):
    def on_settle_answer(self, client: Client, verdict: Verdict) -> Client:
        after = super().on_settle_answer(client, verdict)
        return self.on_no_settle_answer(client) if after.state is LOST else after


class LostIsSettled(AttemptSteps):
    def on_settle_answer(self, client: Client, verdict: Verdict) -> Client:
        return super().on_settle_answer(client, Verdict.OK if verdict is Verdict.LOST else verdict)


class SettlesAfterLost(AttemptSteps):
    def step(self, world: World, index: int, client: Client) -> Iterator[Move]:
        yield from super().step(world, index, client)
        if client.state is LOST:
            yield self.settle(world, index, client, "complete", "completes")


class UnprotectedCompletes(AttemptSteps):
    def step(self, world: World, index: int, client: Client) -> Iterator[Move]:
        yield from super().step(world, index, client)
        if client.state is UNPROTECTED:
            yield self.settle(world, index, client, "complete", "returns")


class SkipsTheVerification(AttemptSteps):
    def begin(self, world: World, index: int, client: Client) -> Iterator[Move]:
        yield self.run_handler(world, index, client)


class InconclusiveIsNotApplied(AttemptSteps):
    def verify(self, world: World, index: int, client: Client) -> Iterator[Move]:
        if not client.begun:
            yield self.run_handler(world, index, client, "verifies: it cannot tell, and calls its handler")


class UnknownFailureIsKnown(AttemptSteps):
    def raise_unknown(self, world: World, index: int, client: Client) -> Iterator[Move]:
        label, then = self.settle(world, index, client, "fail", "raises: the effect is unknown")
        yield label, then.with_client(index, then.clients[index]._replace(known=False))


class LeaseFromTheAnswer(AttemptSteps):
    def lease_end(self, world: World, client: Client) -> int:
        return world.now + LEASE


class ReconcilesByKey(AttemptSteps):
    """Releases whatever claim holds the key, instead of the one whose answer never came."""

    def recognises(self, record: Record, client: Client) -> bool:
        return record.state is RecordState.PENDING and not record.released


class RunsAgainAfterReplay(AttemptSteps):
    def on_claim_answer(
        self, world: World, index: int, client: Client, verdict: Verdict
    ) -> Iterator[tuple[str, Client]]:
        if verdict is not Verdict.REPLAY:
            yield from super().on_claim_answer(world, index, client, verdict)
        else:
            yield "", self.to(client, OWNED, ends=world.now + LEASE)


ATTEMPT_MUTANTS: dict[str, AttemptMutant] = {
    # the claim
    "retry with a new nonce": AttemptMutant(NewNonceOnRetry, "rerun", NOT_ITSELF),
    "a lost reply is a refusal": AttemptMutant(LostReplyIsRefusal, "rerun", NOT_ITSELF),
    "a refusal is ignored": AttemptMutant(RefusalIgnored, "rerun", ALONE),
    "a replay runs again": AttemptMutant(RunsAgainAfterReplay, "rerun", AGAIN),
    "every refusal is a replay": AttemptMutant(RefusedAsReplay, "rerun", EXPLAINED),
    "the work runs before it owns the key": AttemptMutant(RunsWithoutOwning, "rerun", LEGAL),
    "the lease is counted from the answer": AttemptMutant(LeaseFromTheAnswer, "rerun", ALONE),
    # interrupts
    "released after it has run": AttemptMutant(ReleaseAfterRunning, "rerun", UNBEGUN),
    "released after it has run, unchecked": AttemptMutant(ReleaseUnchecked, "verify", DOUBT),
    "an interrupted verification is released": AttemptMutant(ReleaseInterruptedVerification, "verify", DOUBT),
    "unanswered claims are released by key": AttemptMutant(ReconcilesByKey, "rerun", REPLACED),
    # settlements
    "settle without a token": AttemptMutant(SettleWithoutToken, "rerun", REPLACED),
    "renew without a token": AttemptMutant(RenewWithoutToken, "rerun", REPLACED),
    "no answer counts as settled": AttemptMutant(LostReplyIsSettled, "rerun", RECORDED),
    "no answer counts as lost": AttemptMutant(LostReplyIsLost, "rerun", LOST_TO),
    "lost counts as unknown": AttemptMutant(LostIsUnknown, "rerun", UNSURE),
    "lost counts as settled": AttemptMutant(LostIsSettled, "rerun", RECORDED),
    "a lost attempt settles": AttemptMutant(SettlesAfterLost, "rerun", LEGAL),
    "an unprotected attempt settles": AttemptMutant(UnprotectedCompletes, "rerun", LEGAL),
    # verify
    "the verification is skipped": AttemptMutant(SkipsTheVerification, "verify", DOUBT),
    "an inconclusive verification runs": AttemptMutant(InconclusiveIsNotApplied, "verify", DOUBT),
    "an unknown failure is reported as known": AttemptMutant(UnknownFailureIsKnown, "verify", DOUBT),
}
