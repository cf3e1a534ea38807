"""Random histories compared with the state table: the check that finds the most bugs."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from onceward.protocol.record import AfterCrash, RecordState
from onceward.protocol.requests import (
    Answer,
    AnySettlement,
    ClaimRequest,
    Complete,
    ExpectedRecord,
    Fail,
    Park,
    Release,
    Renewal,
    Resolution,
    Resolve,
    Validity,
    Verdict,
)

from .factory import StoreFactory, run_check
from .harness import DAY, HOUR, LEASE, SECOND, SHORT_LEASE, Harness, id_of
from .model import ModelComparison

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Owner = tuple[int, bytes]  # token and nonce


class RequestOwner(StrEnum):
    """The owner in whose name a request is sent."""

    LAST = "the last owner"
    EARLIER = "the owner before"
    WRONG_TOKEN = "the last owner's nonce with another token"  # noqa: S105 (a fencing token)
    WRONG_NONCE = "the last owner's token with another nonce"


class ClaimBatch(Struct, frozen=True):
    """One batch of claims. Each item has the key, the number of the nonce, and the rest of the request."""

    items: tuple[tuple[str, int, ClaimRequest], ...]
    via: int = 0


class OwnerRequest(Struct, frozen=True):
    """A renewal or settlement. Its owner is filled in when it is sent."""

    key: str
    owner: RequestOwner
    request: Renewal | AnySettlement
    via: int = 0


class Expectation(StrEnum):
    """The state that a request to forget a record expects."""

    NOTHING = "nothing"
    THIS = "the record as it is"
    ANOTHER_TOKEN = "a record with another token"  # noqa: S105 (a fencing token)
    ANOTHER_STATE = "the record in another state"


class ForgetStep(Struct, frozen=True):
    """Forget a key."""

    key: str
    force: bool = False
    via: int = 0
    expectation: Expectation = Expectation.NOTHING


class Purge(Struct, frozen=True):
    """Purge at most `limit` records."""

    limit: int
    via: int = 0


class MoveClock(Struct, frozen=True):
    """Advance the clock, or (negative) set it back."""

    microseconds: int


KEYS = ["one", "two"]
UNOWNED = (b"", 0, b"")
"""Id, token and nonce of a request whose owner is filled in later."""

STEP_POOL_SIZE = 4_000
"""Number of different steps to draw from: many times the number of cells in the state table."""

LONG_HISTORY = 30
"""Steps after which two keys have been through most states. Hypothesis shrinks failing histories below this."""

Step = ClaimBatch | OwnerRequest | ForgetStep | Purge | MoveClock

BASE_CLAIM = ClaimRequest(id=b"", scope="kit", key="", nonce=b"", lease=LEASE)
VALIDITIES = (
    Validity(),
    Validity(lasting=SECOND),
    Validity(lasting=8 * SECOND, slide=8 * SECOND),
    Validity(lasting=HOUR, slide=HOUR),
    Validity(until=4 * 10**15),
)
CLOCK_STEPS = [
    1,
    SHORT_LEASE,
    SECOND,
    2 * SECOND,
    5 * SECOND,
    LEASE,
    HOUR // 2,
    HOUR + SECOND,
    31 * DAY,
    -SECOND,
    -HOUR // 2,
]
NOTES: list[dict[str, str]] = [{}, {"path": "a"}, {"path": "b", "é\0🦊": ""}]


class HistoryRunner:
    """Runs steps on the store and the model, and remembers the owners of each key."""

    def __init__(self, model: ModelComparison, harness: Harness) -> None:
        self.model = model
        self._harness = harness
        self._owners: dict[str, list[Owner]] = {}

    async def run_step(self, step: Step) -> list[Answer]:
        model = self.model
        match step:
            case ClaimBatch(items, via):
                answers = await model.claim([self._claim(*item) for item in items], via)
                for (key, _, _), answer in zip(items, answers, strict=True):
                    self._remember(key, answer)
                return answers
            case OwnerRequest(key, owner, Renewal() as request, via):
                token, nonce = self.owner(key, owner)
                return await model.renew([replace(request, id=id_of(key), token=token, nonce=nonce)], via)
            case OwnerRequest(key, owner, Resolve() as request, via):
                seen = model.records.get(id_of(key))
                token = 0 if seen is None else seen.token + (owner is not RequestOwner.LAST)
                return await model.settle([replace(request, id=id_of(key), token_seen=token)], via)
            case OwnerRequest(key, owner, Complete() | Fail() | Park() | Release() as request, via):
                token, nonce = self.owner(key, owner)
                return await model.settle([replace(request, id=id_of(key), token=token, nonce=nonce)], via)
            case ForgetStep(key, force, via, expectation):
                await model.forget(id_of(key), force=force, via=via, seen=self._seen(key, expectation))
            case Purge(limit, via):
                await model.purge(limit, via)
            case MoveClock(microseconds) if self._harness.fake_clock is not None:
                self._harness.move_clock(microseconds)
            case MoveClock(microseconds) if 0 < microseconds <= SHORT_LEASE:  # a store with its own clock has to wait
                await self._harness.elapse(microseconds)
        return []

    def owner(self, key: str, owner: RequestOwner) -> Owner:
        owners = self._owners.get(key, [(1, b"an unused nonce.")])
        token, nonce = owners[-1]
        match owner:
            case RequestOwner.LAST:
                return token, nonce
            case RequestOwner.EARLIER:
                return owners[-2] if len(owners) > 1 else (token - 1, nonce)
            case RequestOwner.WRONG_TOKEN:
                return token + 1, nonce
            case RequestOwner.WRONG_NONCE:
                return token, b"another's nonce."

    def _seen(self, key: str, expectation: Expectation) -> ExpectedRecord | None:
        record = self.model.records.get(id_of(key))
        if expectation is Expectation.NOTHING or record is None:
            return None
        others = [state for state in RecordState if state is not record.state]
        return ExpectedRecord(
            record.token + (expectation is Expectation.ANOTHER_TOKEN),
            others[record.token % len(others)] if expectation is Expectation.ANOTHER_STATE else record.state,
        )

    def _claim(self, key: str, number: int, rest: ClaimRequest) -> ClaimRequest:
        return replace(rest, id=id_of(key), key=key, nonce=b"nonce number %03d" % number)

    def _remember(self, key: str, answer: Answer) -> None:
        if answer.verdict is Verdict.ACQUIRED and answer.record is not None:
            owner = (answer.record.token, answer.record.nonce)
            owners = self._owners.setdefault(key, [])
            if owner not in owners:
                owners.append(owner)


class RandomRequests(Struct, frozen=True):
    """Draws random requests from these values."""

    leases: Sequence[int | None] = (1, SHORT_LEASE, LEASE, LEASE, None)
    fingerprints: Sequence[bytes] = (b"\1one", b"\1one", b"\1one", b"\1two", b"\2one", b"")
    max_attempts: Sequence[int] = (0, 0, 0, 1, 2)
    retry_delays: Sequence[int] = (0, SECOND)
    validities: Sequence[Validity] = VALIDITIES

    def claim(self, rng: Random) -> ClaimRequest:
        """Return a claim whose id, key and nonce are filled in when it is sent."""
        return replace(
            BASE_CLAIM,
            lease=rng.choice(self.leases),
            fingerprint=rng.choice(self.fingerprints),
            arguments=rng.choice([{}, {"x": "1a"}]),
            after_crash=rng.choice([AfterCrash.RERUN, AfterCrash.RERUN, *AfterCrash]),
            max_attempts=rng.choice(self.max_attempts),
            owner=rng.choice(["", "worker é"]),
            note=rng.choice(NOTES),
        )

    def request(self, rng: Random, kind: str) -> Renewal | AnySettlement:
        """Return a request of this kind. Its id, token and nonce are filled in when it is sent."""
        note = rng.choice(NOTES)
        validity = rng.choice(self.validities)
        error: dict[str, Any] = {"error_type": rng.choice(["", "ValueError"]), "error": rng.choice(["", "no é\0"])}
        number = rng.randrange(3)
        value: dict[str, Any] = {"result": (b"done", b"", None)[number], "digest": (b"one", b"two", b"")[number]}
        value |= {"stored": number < 2 or rng.random() < 0.5, "validity": validity, "note": note}
        match kind:
            case "renew":
                return Renewal(*UNOWNED, lease=rng.choice([lease for lease in self.leases if lease]), note=note)
            case "complete":
                return Complete(*UNOWNED, **value)
            case "fail":
                return Fail(
                    *UNOWNED,
                    **error,
                    final=rng.random() < 0.3,
                    known=rng.random() < 0.5,
                    retry_in=rng.choice(self.retry_delays),
                    max_attempts=rng.choice(self.max_attempts),
                    validity=validity,
                    note=note,
                )
            case "park":
                return Park(*UNOWNED, **error, note=note)
            case "release":
                return Release(*UNOWNED)
            case _:
                seen = [RecordState.PARKED, RecordState.PARKED, RecordState.PENDING, RecordState.FAILED]
                force = rng.random() < 0.3
                resolution = rng.choice(list(Resolution))
                return Resolve(b"", 0, resolution, **value, state_seen=rng.choice(seen), force=force)


RANDOM = RandomRequests()
KINDS = ("renew", "complete", "complete", "fail", "park", "release", "resolve")


def random_step(rng: Random) -> Step:
    kind = rng.choices(["claims", "request", "clock", "forget", "purge"], [38, 36, 20, 3, 3])[0]
    match kind:
        case "claims":
            keys = rng.sample(KEYS, rng.randint(1, len(KEYS)))
            return ClaimBatch(tuple((key, rng.randrange(6), RANDOM.claim(rng)) for key in keys), rng.randrange(2))
        case "request":
            owner = rng.choice([*[RequestOwner.LAST] * 6, *RequestOwner])
            return OwnerRequest(rng.choice(KEYS), owner, RANDOM.request(rng, rng.choice(KINDS)), rng.randrange(2))
        case "clock":
            return MoveClock(rng.choice(CLOCK_STEPS))
        case "forget":
            expectation = rng.choice([Expectation.NOTHING, *Expectation])
            return ForgetStep(rng.choice(KEYS), rng.random() < 0.3, rng.randrange(2), expectation)
        case _:
            return Purge(rng.choice([1, 100]), rng.randrange(2))


def histories() -> SearchStrategy[list[Step]]:
    """Draw whole steps from a fixed pool: one cheap draw per step, so that histories get long and shrink well."""
    from hypothesis import strategies as st

    rng = Random(STEP_POOL_SIZE)
    step = st.sampled_from([random_step(rng) for _ in range(STEP_POOL_SIZE)])
    long = st.lists(step, min_size=LONG_HISTORY, max_size=2 * LONG_HISTORY)
    return st.one_of(st.lists(step, min_size=1, max_size=LONG_HISTORY), long, long)


class HistoryChecks(StoreFactory):
    """Two stores on the same data, few keys, few nonces, steps in any order."""

    def test_random_histories_agree_with_the_state_table(self, mode: str, tmp_path: Path) -> None:
        from hypothesis import HealthCheck, Phase, given, settings

        numbers = count()

        @settings(
            max_examples=self.examples or settings().max_examples,
            deadline=None,
            phases=set(settings().phases) - {Phase.explain},  # it traces every line, which is slow
            report_multiple_bugs=False,  # the first is enough, and is then raised directly instead of in a group
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
        @given(histories())
        def run_histories(history: list[Step]) -> None:
            directory = tmp_path / str(next(numbers))
            directory.mkdir()
            run_check(self, mode, directory, lambda _, harness: self.run_history(harness, history))

        run_histories()

    async def run_history(self, harness: Harness, history: Sequence[Step]) -> None:
        model = ModelComparison(await harness.callers(2), harness.fake_clock)
        runner = HistoryRunner(model, harness)
        for number, step in enumerate(history):
            await runner.run_step(step)
            await model.lookup(f"after step {number}", via=number)
            if number % 8 == 0:
                await model.compare(f"after step {number}")
        await model.compare("at the end", via=1)
