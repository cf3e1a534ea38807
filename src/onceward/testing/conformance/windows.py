"""Edge cases of windows: a window of zero length (used for locks), and a window that starts at the claim."""

from __future__ import annotations

from onceward.protocol.record import RecordState
from onceward.protocol.requests import Validity, Verdict

from .factory import StoreFactory, check
from .harness import HOUR, Harness, assert_equal, assert_same, expect

EMPTY_WINDOW = Validity(lasting=0)
CYCLES = 20


class WindowChecks(StoreFactory):
    """How long a record is replayed."""

    @check(mission=("C2",), fault=("F41",))
    async def test_a_window_of_zero_ends_immediately_and_the_key_starts_a_new_cycle(self, harness: Harness) -> None:
        """Zero is a valid length. Only the token of the previous cycle matters."""
        caller, other = await harness.callers(2)
        held = await caller.acquire()
        expect(await other.claim(), Verdict.RUNNING)
        done = expect(await caller.complete(held, None, stored=False, validity=EMPTY_WINDOW), Verdict.OK)
        assert_equal(done.state, RecordState.COMPLETED, "the state of a record with a window of zero")
        assert done.valid_until is not None, "a window of zero became a window without an end"
        expect(await caller.complete(held, None, stored=False, validity=EMPTY_WINDOW), Verdict.OK)
        tokens = [held.token]
        for number in range(CYCLES):
            taker, late = (other, caller) if number % 2 else (caller, other)
            again = await taker.acquire()
            assert_equal((again.attempt, again.cycle), (1, again.token), "attempt and cycle after the next claim")
            expect(await late.complete(held, None, stored=False, validity=EMPTY_WINDOW), Verdict.LOST)
            assert_same(again, await late.read(), "after a completion by a previous owner")
            held = again
            tokens.append(held.token)
            expect(await taker.complete(held, None, stored=False, validity=EMPTY_WINDOW), Verdict.OK)
        assert_equal(tokens, sorted(set(tokens)), "the tokens of one key, which must strictly grow")
        assert_equal(sum((await caller.store.counts(timeout=5)).values()), 1, "records of one key after many cycles")

    @check(mission=("C6",), rival=(24,))
    async def test_a_window_may_start_at_the_claim_for_success_and_failure(self, harness: Harness) -> None:
        caller = await harness.caller()
        for key in ("done", "failed"):
            held = await caller.acquire(key)
            for until, answer in ((held.claimed_at + HOUR, None), (held.claimed_at, Verdict.ACQUIRED)):
                validity = Validity(until=until)
                if key == "done":
                    settled = expect(await caller.complete(held, validity=validity), Verdict.OK)
                else:
                    settled = expect(await caller.fail(held, final=True, validity=validity), Verdict.OK)
                assert_equal(settled.valid_until, until, "the end of a window given as a point in time")
                refused = Verdict.REPLAY if key == "done" else Verdict.FAILED
                record = expect(await caller.claim(key), answer or refused)
                if answer is None:
                    await caller.forget(key)
                    held = await caller.acquire(key)
                else:
                    assert_equal(record.attempt, 1, "the attempt after a window that had ended before the work did")
