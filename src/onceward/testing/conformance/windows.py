"""Windows at their edges: over at once, as a lock is given up, and counted from the attempt instead of its end."""

from __future__ import annotations

from onceward.protocol.record import RecordState
from onceward.protocol.requests import Validity, Verdict

from .factory import StoreFactory, check
from .stage import HOUR, Stage, assert_equal, assert_same, expect

AT_ONCE = Validity(lasting=0)
CYCLES = 20


class WindowChecks(StoreFactory):
    """What a record answers for, and from when on it does not."""

    @check(mission=("C2",), fault=("F41",))
    async def test_a_window_of_nothing_is_over_at_once_and_its_key_starts_anew(self, stage: Stage) -> None:
        """Zero is a length like any other. Only the token of the life before counts."""
        caller, other = await stage.callers(2)
        held = await caller.acquire()
        expect(await other.claim(), Verdict.RUNNING)
        done = expect(await caller.complete(held, None, stored=False, validity=AT_ONCE), Verdict.OK)
        assert_equal(done.state, RecordState.COMPLETED, "the state of a record that was completed for no time at all")
        assert done.valid_until is not None, "a window of nothing became one without an end"
        expect(await caller.complete(held, None, stored=False, validity=AT_ONCE), Verdict.OK)
        tokens = [held.token]
        for number in range(CYCLES):
            taker, late = (other, caller) if number % 2 else (caller, other)
            again = await taker.acquire()
            assert_equal((again.attempt, again.cycle), (1, again.token), "attempt and cycle of the next life")
            expect(await late.complete(held, None, stored=False, validity=AT_ONCE), Verdict.LOST)
            assert_same(again, await late.look(), "after a late owner gave up what is not its own")
            held = again
            tokens.append(held.token)
            expect(await taker.complete(held, None, stored=False, validity=AT_ONCE), Verdict.OK)
        assert_equal(tokens, sorted(set(tokens)), "the tokens of one key, which strictly grow")
        assert_equal(sum((await caller.store.counts(timeout=5)).values()), 1, "records of one key after many lives")

    @check(mission=("C6",), rival=(24,))
    async def test_a_window_may_count_from_the_attempt_whether_it_succeeds_or_fails(self, stage: Stage) -> None:
        caller = await stage.caller()
        for key in ("done", "failed"):
            held = await caller.acquire(key)
            for until, answer in ((held.claimed_at + HOUR, None), (held.claimed_at, Verdict.ACQUIRED)):
                validity = Validity(until=until)
                if key == "done":
                    settled = expect(await caller.complete(held, validity=validity), Verdict.OK)
                else:
                    settled = expect(await caller.fail(held, final=True, validity=validity), Verdict.OK)
                assert_equal(settled.valid_until, until, "the end of a window that was given as an instant")
                refused = Verdict.REPLAY if key == "done" else Verdict.FAILED
                record = expect(await caller.claim(key), answer or refused)
                if answer is None:
                    await caller.forget(key)
                    held = await caller.acquire(key)
                else:
                    assert_equal(record.attempt, 1, "the attempt after a window that was over when its work ended")
