"""Lost replies: whoever repeats a request gets the same answer, and nothing happens twice."""

from __future__ import annotations

from functools import partial

from onceward.protocol.record import AfterCrash, RecordState
from onceward.protocol.requests import Resolution, Verdict

from .factory import StoreFactory, check
from .stage import SHORT, Stage, assert_equal, assert_same, expect, wanting


class ReplyChecks(StoreFactory):
    """The same nonce, the same content, once more."""

    @check(rival=(20,), fault=("F53",))
    async def test_a_claim_repeated_with_its_nonce_gives_the_same_grant(self, stage: Stage) -> None:
        first, second = await stage.callers(2)
        request = wanting("key")
        granted = expect(await first.send(request), Verdict.ACQUIRED)
        for caller in (first, second):
            again = expect(await caller.send(request), Verdict.ACQUIRED)
            assert_same(granted, again, "the repeated claim")

    @check(rival=(20,), fault=("F53",))
    async def test_another_nonce_is_another_claim(self, stage: Stage) -> None:
        caller = await stage.caller()
        held = await caller.acquire()
        assert_same(held, expect(await caller.claim(), Verdict.RUNNING), "what another claimant is shown")

    @check(rival=(20,), fault=("F53",))
    async def test_a_repeated_claim_whose_lease_lapsed_is_live_again(self, stage: Stage) -> None:
        caller = await stage.caller()
        request = wanting("key", lease=SHORT)
        granted = expect(await caller.send(request), Verdict.ACQUIRED)
        await stage.lapse()
        again = expect(await caller.send(request), Verdict.ACQUIRED)
        assert (again.token, again.attempt) == (granted.token, 1), "the same grant, not a second one"
        assert (again.lease_until or 0) > (granted.lease_until or 0), "the lease must begin anew"

    @check(rival=(20,))
    async def test_a_repeated_claim_of_somebody_replaced_gets_nothing(self, stage: Stage) -> None:
        late, quick = await stage.callers(2)
        request = wanting("key", lease=SHORT)
        expect(await late.send(request), Verdict.ACQUIRED)
        await stage.lapse()
        taken = await quick.acquire()
        shown = expect(await late.send(request), Verdict.RUNNING)
        assert_same(taken, shown, "what the replaced one is shown")

    @check(rival=(20,))
    async def test_a_repeated_claim_after_its_own_end_never_runs_again(self, stage: Stage) -> None:
        caller = await stage.caller()
        done = wanting("done")
        expect(await caller.complete(expect(await caller.send(done), Verdict.ACQUIRED), b"it"), Verdict.OK)
        assert_equal(expect(await caller.send(done), Verdict.REPLAY).result, b"it", "the replayed result")
        for name in ("fail", "park", "release"):
            request = wanting(name)
            expect(await getattr(caller, name)(expect(await caller.send(request), Verdict.ACQUIRED)), Verdict.OK)
            expect(await caller.send(request), Verdict.SETTLED)

    @check(rival=(20,))
    async def test_a_repeated_take_over_still_says_that_one_must_ask_first(self, stage: Stage) -> None:
        caller = await stage.caller()
        await stage.lapsed(caller, after_crash=AfterCrash.VERIFY)
        request = wanting("key")
        taken = expect(await caller.send(request), Verdict.ACQUIRED)
        assert taken.ask_first, "a take-over under verify must ask first"
        assert_same(taken, expect(await caller.send(request), Verdict.ACQUIRED), "the repeated take-over")

    @check(rival=(20,), fault=("F53",))
    async def test_one_claim_that_arrives_many_times_at_once_is_one_grant(self, stage: Stage) -> None:
        callers = await stage.callers(4)
        for number in range(5):
            request = wanting(f"key {number}")
            answers = await stage.together([partial(caller.send, request) for caller in callers])
            granted = [expect(answer, Verdict.ACQUIRED) for answer in answers]
            assert {(one.token, one.attempt) for one in granted} == {(granted[0].token, 1)}, f"not one grant: {granted}"

    @check(fault=("F36", "F51"))
    async def test_completing_again_is_fine_with_equal_content_and_a_conflict_with_other(self, stage: Stage) -> None:
        caller = await stage.caller()
        held = await caller.acquire()
        done = expect(await caller.complete(held, b"one"), Verdict.OK)
        assert_same(done, expect(await caller.complete(held, b"one"), Verdict.OK), "completing again")
        shown = expect(await caller.complete(held, b"two"), Verdict.CONFLICT)
        assert_same(done, shown, "the conflict's record")
        assert_same(done, await caller.record(), "after the conflict")

    @check(fault=("F36",))
    async def test_other_settlements_again_are_fine_and_change_nothing(self, stage: Stage) -> None:
        caller = await stage.caller()
        for name in ("fail", "park", "release"):
            held = await caller.acquire(name)
            once = expect(await getattr(caller, name)(held), Verdict.OK)
            assert_same(once, expect(await getattr(caller, name)(held), Verdict.OK), f"{name} again")

    @check(fault=("F36",))
    async def test_only_the_first_of_two_resolutions_holds(self, stage: Stage) -> None:
        first, second = await stage.callers(2)
        parked = expect(await first.park(await first.acquire()), Verdict.OK)
        answers = await stage.together(
            [
                partial(first.resolve, parked, Resolution.APPLIED, result=b"it"),
                partial(second.resolve, parked, Resolution.ABANDON),
            ]
        )
        assert sorted(answer.verdict for answer in answers) == [Verdict.LOST, Verdict.OK], f"{answers}"
        record = await first.record()
        wanted = RecordState.COMPLETED if answers[0].verdict is Verdict.OK else RecordState.FAILED
        assert_equal(record.state, wanted, "what became of the parked record")
        assert record.token > parked.token, "a resolution cuts the late owner off"
