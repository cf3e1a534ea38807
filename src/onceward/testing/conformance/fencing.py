"""Fencing: a replaced owner cannot change anything, a late owner that was not replaced can, and tokens only grow."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import ExpectedRecord, Resolution, Validity, Verdict

from .factory import StoreFactory, check
from .harness import (
    DAY,
    HOUR,
    LEASE,
    SECOND,
    SHORT_LEASE,
    Caller,
    Harness,
    altered_owner,
    assert_equal,
    assert_same,
    expect,
)


class FencingChecks(StoreFactory):
    """Checks with owners, late owners and replaced owners."""

    @check(mission=("A4", "A7"), rival=(1,), fault=("F32", "F41"))
    async def test_a_replaced_owner_changes_nothing_while_the_new_one_works(self, harness: Harness) -> None:
        late, quick = await harness.callers(2)
        held = await harness.expired_owner(late)
        taken = await quick.acquire()
        assert taken.attempt == 2, f"a takeover is attempt 2, not {taken.attempt}"
        await assert_powerless(harness, late, held)
        expect(await quick.renew(taken), Verdict.OK)
        expect(await quick.complete(taken, b"of the new owner"), Verdict.OK)

    @check(mission=("A7",), rival=(1,), fault=("F41",))
    async def test_a_replaced_owner_changes_nothing_after_the_new_one_settled(self, harness: Harness) -> None:
        late, quick = await harness.callers(2)
        for name in ENDINGS:
            held = await harness.expired_owner(late, name)
            await end(quick, await quick.acquire(name), name)
            await assert_powerless(harness, late, held, name)

    @check(rival=(1,), fault=("F41",))
    async def test_a_wrong_token_or_nonce_is_not_the_owner(self, harness: Harness) -> None:
        caller = await harness.caller()
        held = await caller.acquire()
        for nearly in altered_owners(held):
            await assert_powerless(harness, caller, nearly)
        expect(await caller.complete(held), Verdict.OK)

    @check(rival=(1,), fault=("F36",))
    async def test_a_completion_needs_the_owner_and_the_same_result(self, harness: Harness) -> None:
        caller = await harness.caller()

        async def verdict(held: Record, result: bytes) -> Verdict:
            return (await caller.complete(held, result)).verdict

        held = await caller.acquire()
        for nearly in altered_owners(held):
            assert_equal(await verdict(nearly, b"one"), Verdict.LOST, "a wrong token or nonce")
        expect(await caller.renew(held, note={"step": "two"}), Verdict.OK)
        assert_equal(await verdict(held, b"one"), Verdict.OK, "after a renewal")
        assert_equal(await verdict(held, b"one"), Verdict.OK, "the same again")
        assert_equal(await verdict(held, b"two"), Verdict.CONFLICT, "another result")
        assert_equal((await caller.record()).result, b"one", "the result that stays")
        first = await harness.expired_owner(caller, "taken over", after_crash=AfterCrash.VERIFY)
        second = await caller.acquire("taken over", after_crash=AfterCrash.VERIFY)
        assert_equal(await verdict(first, b"one"), Verdict.LOST, "replaced")
        expect(await caller.release(second), Verdict.OK)
        assert_equal(await verdict(second, b"one"), Verdict.LOST, "after a release without verification")

    @check()
    async def test_a_key_that_was_never_claimed_has_no_owner(self, harness: Harness) -> None:
        caller = await harness.caller()
        unknown = Record(id=b"\7" * 32, scope="kit", key="never", state=RecordState.PENDING, token=7, nonce=b"7" * 16)
        for verb, answer in (await caller.owner_requests(unknown)).items():
            assert (answer.verdict, answer.record) == (Verdict.LOST, None), f"{verb} returns {answer}"
        assert await caller.read(id=unknown.id) is None, "an owner's request created a record"

    @check(rival=(1,), fault=("F32", "F33"))
    async def test_a_late_owner_that_was_not_replaced_may_still_settle(self, harness: Harness) -> None:
        caller = await harness.caller()
        held = await harness.expired_owner(caller, "renewed")
        alive = expect(await caller.renew(held), Verdict.OK)
        assert_equal(alive.token, held.token, "the token of a late owner who renews")
        expect(await caller.claim("renewed"), Verdict.RUNNING)
        for name in ENDINGS:
            await end(caller, await harness.expired_owner(caller, name), name)

    @check(rival=(1, 24))
    async def test_a_failure_keeps_the_record_and_its_attempts(self, harness: Harness) -> None:
        caller = await harness.caller()
        first = await caller.acquire()
        failed = expect(await caller.fail(first, error_type="ValueError", error="no"), Verdict.OK)
        assert_equal((failed.state, failed.attempt, failed.error), (RecordState.FAILED, 1, "no"), "after a failure")
        second = await caller.acquire()
        assert (second.attempt, second.cycle) == (2, first.cycle), "a retry is one more attempt of the same cycle"

    @check()
    async def test_a_parked_record_accepts_its_late_owner_or_an_operator(self, harness: Harness) -> None:
        caller = await harness.caller()
        for name in ("late owner", "resolved"):
            held = await harness.expired_owner(caller, name, after_crash=AfterCrash.PARK)
            parked = expect(await caller.claim(name), Verdict.PARKED)
            assert (parked.token, parked.nonce) == (held.token, held.nonce), (
                "parking must not change the token and nonce of the late owner"
            )
            if name == "resolved":
                expect(await caller.resolve(parked, Resolution.NOT_APPLIED), Verdict.OK)
                await assert_powerless(harness, caller, held, name)
                expect(await caller.resolve(parked, Resolution.APPLIED), Verdict.LOST)
                await caller.acquire(name)
            else:
                expect(await caller.complete(held), Verdict.OK)

    @check(rival=(22,))
    async def test_tokens_grow_through_every_transition(self, harness: Harness) -> None:
        caller = await harness.caller()
        held = await caller.acquire()
        tokens = [held.token]

        async def again(lease: int = LEASE) -> Record:
            record = await caller.acquire(lease=lease)
            tokens.append(record.token)
            return record

        expect(await caller.release(held), Verdict.OK)
        expect(await caller.fail(await again()), Verdict.OK)
        await again(lease=SHORT_LEASE)
        await harness.elapse()
        expect(await caller.complete(await again(), validity=Validity(lasting=1)), Verdict.OK)
        await harness.elapse(1)
        await again()
        expect(await caller.forget(force=True), Verdict.OK)
        expect(await caller.complete(await again()), Verdict.OK)
        expect(await caller.forget(), Verdict.OK)
        expect(await caller.park(await again()), Verdict.OK)
        tokens.append(expect(await caller.resolve(await caller.record(), Resolution.NOT_APPLIED), Verdict.OK).token)
        await again()
        assert_growing(tokens)

    @check(rival=(22,), fault=("F44", "F68"), needs=("fake_clock",))
    async def test_tokens_grow_across_purge_even_if_the_clock_is_set_back(self, harness: Harness) -> None:
        late, caller = await harness.callers(2)
        zombie = await late.acquire()
        expect(await caller.forget(force=True), Verdict.OK)
        harness.move_clock(HOUR + SECOND)
        assert_equal(await caller.purge(), 1, "old records that a purge finds")
        assert_equal(await caller.read(), None, "after the purge")
        for verb, answer in (await late.owner_requests(zombie)).items():
            assert answer.verdict is Verdict.LOST, f"{verb} after the purge returns {answer.verdict}"
        harness.move_clock(-HOUR)
        held = await caller.acquire()
        assert_growing([zombie.token, held.token])
        assert held.cycle != zombie.cycle, "a claim after a purge must start a new cycle"
        await assert_powerless(harness, late, zombie)

    @check(fault=("F44",), needs=("fake_clock",))
    async def test_tokens_grow_while_the_clock_is_set_back_by_days(self, harness: Harness) -> None:
        caller = await harness.caller()
        tokens = []
        for _ in range(4):
            harness.move_clock(-DAY)
            held = await caller.acquire()
            tokens.append(held.token)
            expect(await caller.release(held), Verdict.OK)
        assert_growing(tokens)

    @check()
    async def test_forget_refuses_a_live_owner_unless_forced(self, harness: Harness) -> None:
        caller = await harness.caller()
        held = await caller.acquire()
        expect(await caller.forget(), Verdict.REFUSED)
        assert_same(held, await caller.record(), "after a refused forget")
        free = expect(await caller.forget(force=True), Verdict.OK)
        assert_equal(free.state, RecordState.FREE, "after a forced forget")
        await assert_powerless(harness, caller, held)
        new = await caller.acquire()
        assert (new.attempt, new.cycle != held.cycle) == (1, True), "a claim after forget must start a new cycle"

    @check()
    async def test_forget_and_resolve_check_the_state_that_was_seen(self, harness: Harness) -> None:
        caller, operator = await harness.callers(2)
        shown = await harness.expired_owner(caller)
        seen = {shown.id: ExpectedRecord(shown.token, shown.state)}
        done = expect(await caller.complete(shown), Verdict.OK)  # late, with the same token
        expect(await operator.forget(seen=seen, force=True), Verdict.LOST)
        forced = operator.resolve(shown, Resolution.NOT_APPLIED, state_seen=RecordState.PENDING, force=True)
        expect(await forced, Verdict.LOST)
        assert_same(done, await operator.record(), "after requests that expected an outdated state")
        now_seen = {done.id: ExpectedRecord(done.token, done.state)}
        assert_equal(
            expect(await operator.forget(seen=now_seen), Verdict.OK).state, RecordState.FREE, "with the current state"
        )


ENDINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "completed": ("complete", {"result": b"of the owner"}),
    "failed": ("fail", {"error": "of the owner"}),
    "refused": ("fail", {"error": "of the owner", "final": True}),
    "parked": ("park", {"error": "of the owner"}),
    "released": ("release", {}),
}
"""Every way to end an ownership: the method of a caller, and its arguments."""


async def end(caller: Caller, held: Record, ending: str) -> None:
    verb, how = ENDINGS[ending]
    expect(await getattr(caller, verb)(held, **how), Verdict.OK)


async def assert_powerless(harness: Harness, caller: Caller, held: Record, key: str = "key") -> None:
    """Assert that all requests of this owner are refused, and that neither the record nor the database changes."""
    before, raw = await caller.record(key), harness.raw(key)
    for verb, answer in (await caller.owner_requests(held)).items():
        assert answer.verdict is Verdict.LOST, f"{verb} of a replaced owner returns {answer.verdict} instead of lost"
        assert_same(before, answer.record, f"{verb} of a replaced owner, in the answer")
    assert_same(before, await caller.record(key), "after the requests of a replaced owner")
    assert raw == harness.raw(key), f"a replaced owner changed the raw record from {raw} to {harness.raw(key)}"


def altered_owners(held: Record) -> list[Record]:
    """Return callers that are nearly the owner: with another token, or another nonce."""
    return [altered_owner(held, token=1), altered_owner(held, token=-1), replace(held, nonce=b"0" * 16)]


def assert_growing(tokens: list[int]) -> None:
    assert all(earlier < later for earlier, later in pairwise(tokens)), f"tokens must strictly grow: {tokens}"
