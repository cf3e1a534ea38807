"""Lost replies: a caller that repeats a request gets the same answer, and nothing happens twice."""

from __future__ import annotations

from functools import partial

from onceward.protocol.record import AfterCrash, RecordState
from onceward.protocol.requests import Resolution, Verdict

from .factory import StoreFactory, check
from .harness import SHORT_LEASE, Harness, assert_equal, assert_same, claim_request, expect


class ReplyChecks(StoreFactory):
    """Requests that are sent again with the same nonce or the same content."""

    @check(rival=(20,), fault=("F53",))
    async def test_a_claim_repeated_with_its_nonce_gives_the_same_grant(self, harness: Harness) -> None:
        first, second = await harness.callers(2)
        request = claim_request("key")
        granted = expect(await first.send(request), Verdict.ACQUIRED)
        for caller in (first, second):
            again = expect(await caller.send(request), Verdict.ACQUIRED)
            assert_same(granted, again, "the repeated claim")

    @check(rival=(20,), fault=("F53",))
    async def test_another_nonce_is_another_claim(self, harness: Harness) -> None:
        caller = await harness.caller()
        held = await caller.acquire()
        assert_same(held, expect(await caller.claim(), Verdict.RUNNING), "the record that another claimant gets")

    @check(rival=(20,), fault=("F53",))
    async def test_a_repeated_claim_renews_its_expired_lease(self, harness: Harness) -> None:
        caller = await harness.caller()
        request = claim_request("key", lease=SHORT_LEASE)
        granted = expect(await caller.send(request), Verdict.ACQUIRED)
        await harness.elapse()
        again = expect(await caller.send(request), Verdict.ACQUIRED)
        assert (again.token, again.attempt) == (granted.token, 1), "the same grant, not a second one"
        assert (again.lease_until or 0) > (granted.lease_until or 0), "the lease must start again"

    @check(rival=(20,))
    async def test_a_repeated_claim_of_a_replaced_owner_is_refused(self, harness: Harness) -> None:
        late, quick = await harness.callers(2)
        request = claim_request("key", lease=SHORT_LEASE)
        expect(await late.send(request), Verdict.ACQUIRED)
        await harness.elapse()
        taken = await quick.acquire()
        shown = expect(await late.send(request), Verdict.RUNNING)
        assert_same(taken, shown, "the record that the replaced owner gets")

    @check(rival=(20,))
    async def test_a_repeated_claim_after_its_settlement_never_runs_again(self, harness: Harness) -> None:
        caller = await harness.caller()
        done = claim_request("done")
        expect(await caller.complete(expect(await caller.send(done), Verdict.ACQUIRED), b"it"), Verdict.OK)
        assert_equal(expect(await caller.send(done), Verdict.REPLAY).result, b"it", "the replayed result")
        for name in ("fail", "park", "release"):
            request = claim_request(name)
            expect(await getattr(caller, name)(expect(await caller.send(request), Verdict.ACQUIRED)), Verdict.OK)
            expect(await caller.send(request), Verdict.SETTLED)

    @check(rival=(20,))
    async def test_a_repeated_takeover_still_requires_verification(self, harness: Harness) -> None:
        caller = await harness.caller()
        await harness.expired_owner(caller, after_crash=AfterCrash.VERIFY)
        request = claim_request("key")
        taken = expect(await caller.send(request), Verdict.ACQUIRED)
        assert taken.ask_first, "a takeover under verify must verify first"
        assert_same(taken, expect(await caller.send(request), Verdict.ACQUIRED), "the repeated takeover")

    @check(rival=(20,), fault=("F53",))
    async def test_concurrent_repetitions_of_a_claim_are_one_grant(self, harness: Harness) -> None:
        callers = await harness.callers(4)
        for number in range(5):
            request = claim_request(f"key {number}")
            answers = await harness.run_concurrently([partial(caller.send, request) for caller in callers])
            granted = [expect(answer, Verdict.ACQUIRED) for answer in answers]
            assert {(one.token, one.attempt) for one in granted} == {(granted[0].token, 1)}, f"not one grant: {granted}"

    @check(fault=("F36", "F51"))
    async def test_a_repeated_completion_succeeds_or_conflicts_by_content(self, harness: Harness) -> None:
        caller = await harness.caller()
        held = await caller.acquire()
        done = expect(await caller.complete(held, b"one"), Verdict.OK)
        assert_same(done, expect(await caller.complete(held, b"one"), Verdict.OK), "the repeated completion")
        shown = expect(await caller.complete(held, b"two"), Verdict.CONFLICT)
        assert_same(done, shown, "the record in the conflict answer")
        assert_same(done, await caller.record(), "after the conflict")

    @check(fault=("F36",))
    async def test_other_repeated_settlements_succeed_and_change_nothing(self, harness: Harness) -> None:
        caller = await harness.caller()
        for name in ("fail", "park", "release"):
            held = await caller.acquire(name)
            first = expect(await getattr(caller, name)(held), Verdict.OK)
            assert_same(first, expect(await getattr(caller, name)(held), Verdict.OK), f"{name} again")

    @check(fault=("F36",))
    async def test_only_the_first_of_two_resolutions_wins(self, harness: Harness) -> None:
        first, second = await harness.callers(2)
        parked = expect(await first.park(await first.acquire()), Verdict.OK)
        answers = await harness.run_concurrently(
            [
                partial(first.resolve, parked, Resolution.APPLIED, result=b"it"),
                partial(second.resolve, parked, Resolution.ABANDON),
            ]
        )
        assert sorted(answer.verdict for answer in answers) == [Verdict.LOST, Verdict.OK], f"{answers}"
        record = await first.record()
        wanted = RecordState.COMPLETED if answers[0].verdict is Verdict.OK else RecordState.FAILED
        assert_equal(record.state, wanted, "the state of the parked record")
        assert record.token > parked.token, "a resolution must fence the late owner off"
