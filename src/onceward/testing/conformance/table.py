"""Every cell of the state table: bring a record into each row, and send each request to it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from msgspec.structs import replace

from onceward.protocol.record import READER, AfterCrash, RecordState
from onceward.protocol.requests import (
    AnySettlement,
    Complete,
    Fail,
    Park,
    Release,
    Renewal,
    Resolution,
    Resolve,
    Validity,
    Verdict,
)
from onceward.protocol.transitions import Row, row_of

from .factory import StoreFactory, check
from .harness import DAY, LEASE, SECOND, Harness, assert_same, id_of
from .histories import (
    BASE_CLAIM,
    ClaimBatch,
    Expectation,
    ForgetStep,
    HistoryRunner,
    MoveClock,
    OwnerRequest,
    RequestOwner,
    Step,
)
from .model import ModelComparison

MICROSECOND = 1
"""Length of leases and windows, so that the check hardly waits for a store with its own clock."""

SHORT_WINDOW = Validity(lasting=MICROSECOND)
OWN_CLAIM = replace(BASE_CLAIM, fingerprint=b"\1payload", arguments={"x": "1a"}, note={"path": "a"}, owner="worker")
COMPLETE = Complete(b"", 0, b"", result=b"done", digest=b"digest", note={"done": "yes"})
FAIL = Fail(b"", 0, b"", error_type="ValueError", error="no", note={"failed": "yes"})
PARK = Park(b"", 0, b"", error_type="Timeout", error="unknown outcome", note={"parked": "yes"})
RELEASE = Release(b"", 0, b"")
RENEW = Renewal(b"", 0, b"", LEASE, note={"alive": "yes"})
"""Requests of the owner. Their id, token and nonce are filled in when they are sent."""


def claim_step(key: str, nonce: int = 0, **how: object) -> ClaimBatch:
    return ClaimBatch(((key, nonce, replace(OWN_CLAIM, **how)),))


def owner_step(key: str, request: Complete | Fail | Park | Release) -> OwnerRequest:
    return OwnerRequest(key, RequestOwner.LAST, request)


def steps_to(row: Row, key: str) -> list[Step]:
    """Return the steps that bring a new key into this row."""
    claim, expiring = claim_step(key), claim_step(key, lease=MICROSECOND)
    verifying = claim_step(key, lease=MICROSECOND, after_crash=AfterCrash.VERIFY)
    steps: dict[Row, list[Step]] = {
        Row.NONE: [],
        Row.FREE: [claim, owner_step(key, RELEASE)],
        Row.PENDING_LIVE: [claim],
        Row.PENDING_LAPSED: [expiring, MoveClock(MICROSECOND)],
        Row.RELEASED_UNVERIFIED: [
            verifying,
            MoveClock(MICROSECOND),
            claim_step(key, 1, after_crash=AfterCrash.VERIFY),
            owner_step(key, RELEASE),
        ],
        Row.FAILED_RETRYABLE: [claim, owner_step(key, FAIL)],
        Row.FAILED_RETRYABLE_EXPIRED: [claim, owner_step(key, FAIL), MoveClock(31 * DAY)],
        Row.FAILED_FINAL: [claim, owner_step(key, replace(FAIL, final=True))],
        Row.FAILED_FINAL_EXPIRED: [
            claim,
            owner_step(key, replace(FAIL, final=True, validity=SHORT_WINDOW)),
            MoveClock(MICROSECOND),
        ],
        Row.COMPLETED: [claim, owner_step(key, COMPLETE)],
        Row.COMPLETED_EXPIRED: [
            claim,
            owner_step(key, replace(COMPLETE, validity=SHORT_WINDOW)),
            MoveClock(MICROSECOND),
        ],
        Row.PARKED: [claim, owner_step(key, PARK)],
    }
    return steps[row]


def claim_requests(key: str) -> list[Step]:
    """Return claims by a new caller, repeated, with other payloads, and with each policy."""
    return [
        claim_step(key, 3),
        claim_step(key, 0),
        claim_step(key, 3, fingerprint=b"\1another", arguments={"x": "2b"}),
        claim_step(key, 3, fingerprint=b"\2of a newer encoder"),
        claim_step(key, 3, fingerprint=b""),
        claim_step(key, 3, after_crash=AfterCrash.VERIFY),
        claim_step(key, 3, after_crash=AfterCrash.PARK),
        claim_step(key, 3, max_attempts=1),
        claim_step(key, 3, lease=None),
    ]


def owner_requests(key: str) -> list[Step]:
    """Return every request of an owner, sent by the owner and by callers with a wrong token or nonce."""
    requests: list[Renewal | AnySettlement] = [
        RENEW,
        replace(RENEW, note={}),
        COMPLETE,
        replace(COMPLETE, note={}),
        replace(COMPLETE, digest=b"other", result=b"other"),
        replace(COMPLETE, result=None, stored=False),
        FAIL,
        replace(FAIL, known=True, retry_in=SECOND),
        replace(FAIL, final=True, validity=SHORT_WINDOW),
        replace(FAIL, max_attempts=1),
        PARK,
        RELEASE,
    ]
    plain: list[Renewal | AnySettlement] = [RENEW, COMPLETE, FAIL, PARK, RELEASE]
    not_owner = [OwnerRequest(key, owner, one) for one in plain for owner in list(RequestOwner)[1:]]
    return [*(OwnerRequest(key, RequestOwner.LAST, one) for one in requests), *not_owner]


def operator_requests(key: str) -> list[Step]:
    """Return requests that need no ownership, with an expected state that is current, and one that is outdated."""
    applied, not_applied, abandoned = (Resolve(b"", 0, one, result=b"known", digest=b"known") for one in Resolution)
    resolves = [
        OwnerRequest(key, owner, one) for one in (applied, not_applied, abandoned) for owner in list(RequestOwner)[:2]
    ]
    unparked = [
        replace(not_applied, state_seen=RecordState.PENDING),
        replace(not_applied, state_seen=RecordState.PENDING, force=True),
        replace(applied, state_seen=RecordState.PENDING, force=True),
        replace(abandoned, state_seen=RecordState.PENDING, force=True),
        replace(not_applied, state_seen=RecordState.FAILED),
        replace(applied, state_seen=RecordState.FAILED),
    ]
    outdated = OwnerRequest(key, RequestOwner.EARLIER, replace(not_applied, state_seen=RecordState.PENDING, force=True))
    forgets = [
        ForgetStep(key, force=force, expectation=expectation) for expectation in Expectation for force in (False, True)
    ]
    return [*resolves, *(OwnerRequest(key, RequestOwner.LAST, one) for one in unparked), outdated, *forgets]


class TableChecks(StoreFactory):
    """The cells of the state table, in three groups of columns."""

    @check(rival=(1, 5, 24), fault=("F18", "F42"))
    async def test_claims_in_every_row_agree_with_the_state_table(self, harness: Harness) -> None:
        model = await run_every_cell(harness, claim_requests)
        assert_visited(model, harness, "claim")

    @check(rival=(1,), fault=("F36", "F41"))
    async def test_owner_requests_in_every_row_agree_with_the_state_table(self, harness: Harness) -> None:
        model = await run_every_cell(harness, owner_requests)
        assert_visited(model, harness, "renew", "complete", "fail", "park", "release")

    @check()
    async def test_resolve_and_forget_in_every_row_agree_with_the_state_table(self, harness: Harness) -> None:
        model = await run_every_cell(harness, operator_requests)
        assert_visited(model, harness, "resolve", "forget")

    @check(fault=("F67",))
    async def test_a_record_of_a_newer_version_is_not_changed(self, harness: Harness) -> None:
        caller = await harness.caller()
        held = await caller.acquire()
        self.overwrite(harness.directory, held.id, min_reader=READER + 1)
        before = await caller.record()
        answers = {
            "claim": await caller.claim(),
            "repeated claim": await caller.claim(nonce=held.nonce),
            "forget": await caller.forget(force=True),
            "resolve": await caller.resolve(held, Resolution.ABANDON),
            **await caller.owner_requests(held),
        }
        for verb, answer in answers.items():
            assert answer.verdict is Verdict.SKEW, f"{verb} of a newer record returns {answer.verdict} instead of skew"
        assert_same(before, await caller.record(), "after all requests")


def reachable_rows(harness: Harness) -> list[Row]:
    """Return the rows that can be reached through the port. One takes 30 days, so it needs the fake clock."""
    return [
        row
        for row in Row
        if row is not Row.NEWER and (harness.fake_clock is not None or row is not Row.FAILED_RETRYABLE_EXPIRED)
    ]


async def run_every_cell(harness: Harness, verbs: Callable[[str], list[Step]]) -> ModelComparison:
    """Send every request in every row."""
    model = ModelComparison(await harness.callers(1), harness.fake_clock)
    runner = HistoryRunner(model, harness)
    for row, number in product(reachable_rows(harness), range(len(verbs("")))):
        key = f"{row} {number}"
        for step in steps_to(row, key):
            await runner.run_step(step)
        record = model.records.get(id_of(key))
        assert row_of(record, harness.clock.now()) is row, f"the steps to {row} end with {record}"
        await runner.run_step(verbs(key)[number])
    await model.compare("after every cell")
    return model


def assert_visited(model: ModelComparison, harness: Harness, *verbs: str) -> None:
    """Assert that every verb was tried in every reachable row: a check that skips cells proves nothing about them."""
    missing = set(product(reachable_rows(harness), verbs)) - set(model.visited)
    assert not missing, f"never tried: {missing}"
