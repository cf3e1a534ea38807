"""Races between threads or tasks. They guard a counter that loses an increment if two callers own the key."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

from onceward.errors import OncewardError
from onceward.protocol.record import Record
from onceward.protocol.requests import Answer, ClaimRequest, Release, Renewal, Verdict

from .factory import StoreFactory, check
from .harness import LEASE, TIMEOUT, Caller, Harness, assert_equal, claim_request, expect

PAUSE = 0.001
"""Seconds between reading and writing the counter: long enough for another thread or task to interfere."""


class UnsafeCounter:
    """A counter that is not atomic on purpose. It remembers the token of each write."""

    def __init__(self, harness: Harness) -> None:
        self.value = 0
        self.tokens: list[int] = []
        self.abandoned = False
        self._harness = harness

    async def increment(self, token: int) -> None:
        seen = self.value
        await self._harness.sleep(PAUSE)
        self.value = seen + 1
        self.tokens.append(token)


class RaceChecks(StoreFactory):
    """Of many concurrent callers exactly one wins."""

    @check(mission=("B2", "C2"), rival=(18,))
    async def test_of_many_claimants_of_one_key_exactly_one_acquires(self, harness: Harness) -> None:
        callers = await harness.callers(6)
        for number in range(8):
            answers = await harness.run_concurrently([partial(caller.claim, f"key {number}") for caller in callers])
            assert_one_winner(answers, attempt=1)

    @check(mission=("B2", "B7"), rival=(18,))
    async def test_many_claimants_may_share_one_store(self, harness: Harness) -> None:
        caller = await harness.caller()
        for number in range(8):
            answers = await harness.run_concurrently([partial(caller.claim, f"key {number}") for _ in range(6)])
            assert_one_winner(answers, attempt=1)

    @check(mission=("A3", "A7"), fault=("F40",))
    async def test_of_many_takeovers_of_an_expired_lease_exactly_one_wins(self, harness: Harness) -> None:
        callers = await harness.callers(6)
        for number in range(5):
            key = f"key {number}"
            late = await harness.expired_owner(callers[0], key)
            answers = await harness.run_concurrently([partial(caller.claim, key) for caller in callers])
            winner = assert_one_winner(answers, attempt=2)
            assert winner.token > late.token, f"token {winner.token} after {late.token}: a replaced owner would pass"
            expect(await callers[0].complete(late), Verdict.LOST)

    @check(mission=("A7",), fault=("F40", "F41"))
    async def test_the_late_owner_and_its_successor_do_not_both_win(self, harness: Harness) -> None:
        late, quick = await harness.callers(2)
        for number in range(10):
            key = f"key {number}"
            held = await harness.expired_owner(late, key)
            jobs = [partial(late.complete, held, b"of the late one"), partial(quick.claim, key)]
            answers = await harness.run_concurrently(jobs if number % 2 else jobs[::-1])
            outcome = {answer.verdict for answer in answers}
            assert outcome in ({Verdict.OK, Verdict.REPLAY}, {Verdict.LOST, Verdict.ACQUIRED}), (
                f"both or none won: {outcome}"
            )

    @check(mission=("C2",), rival=(18,))
    async def test_a_claim_protects_an_unsafe_counter(self, harness: Harness) -> None:
        callers, times = await harness.callers(4), 4
        counter = UnsafeCounter(harness)
        await harness.run_concurrently(
            [partial(increment_under_claim, harness, caller, counter, times) for caller in callers]
        )
        assert counter.value == len(callers) * times, f"{len(callers) * times} increments, {counter.value} counted"
        assert counter.tokens == sorted(set(counter.tokens)), f"later owners need higher tokens: {counter.tokens}"

    @check(fault=("F39",))
    async def test_batches_in_different_orders_neither_deadlock_nor_share_a_key(self, harness: Harness) -> None:
        callers, keys = await harness.callers(4), [f"key {number}" for number in range(20)]
        batches = [[claim_request(key) for key in order] for order in key_orders(keys, len(callers))]
        answers = await harness.run_concurrently(
            [
                partial(caller.store.claim, batch, timeout=TIMEOUT)
                for caller, batch in zip(callers, batches, strict=True)
            ]
        )
        for batch, replies in zip(batches, answers, strict=True):
            assert [one.id for one in batch] == [reply.record.id for reply in replies if reply.record], (
                "answers in order"
            )
        by_key: dict[bytes, list[Answer]] = {}
        for reply in (reply for replies in answers for reply in replies):
            by_key.setdefault(reply.record.id if reply.record else b"", []).append(reply)
        assert_equal(len(by_key), len(keys), "keys that got answers")
        winners = [assert_one_winner(replies, attempt=1) for replies in by_key.values()]
        settled = await harness.run_concurrently(
            [partial(settle_own, caller, winners, batch) for caller, batch in zip(callers, batches, strict=True)]
        )
        assert sum(settled) == len(keys), f"{sum(settled)} of {len(keys)} owners could settle"

    @check(rival=(18,))
    async def test_two_requests_for_one_key_in_one_batch_never_both_win(self, harness: Harness) -> None:
        """The port forbids such a batch. The store must raise an error or grant one of them."""
        caller = await harness.caller()
        try:
            answers = await caller.store.claim(
                [claim_request("key"), claim_request("other"), claim_request("key")], timeout=TIMEOUT
            )
        except (OncewardError, ValueError):
            return
        won = [answer.record.id for answer in answers if answer.verdict is Verdict.ACQUIRED and answer.record]
        assert len(won) == len(set(won)), f"two requests for one key both won: {answers}"


async def increment_under_claim(harness: Harness, caller: Caller, counter: UnsafeCounter, times: int) -> None:
    """Claim, increment, release. If the key is taken, try again, until another job has failed."""
    try:
        while times and not counter.abandoned:
            answer = await caller.claim()
            held = expect(answer, Verdict.ACQUIRED, Verdict.RUNNING)
            if answer.verdict is Verdict.RUNNING:
                await harness.sleep(PAUSE)
                continue
            await counter.increment(held.token)
            expect(await caller.release(held), Verdict.OK)
            times -= 1
    except BaseException:
        counter.abandoned = True
        raise


async def settle_own(caller: Caller, winners: list[Record], batch: list[ClaimRequest]) -> int:
    """Renew and release the keys this caller won, in the batch's order. Return how many were released."""
    by_nonce = {winner.nonce: winner for winner in winners}
    own = [by_nonce[one.nonce] for one in batch if one.nonce in by_nonce]
    renewed = await caller.store.renew([Renewal(one.id, one.token, one.nonce, LEASE) for one in own], timeout=TIMEOUT)
    assert all(answer.verdict is Verdict.OK for answer in renewed), f"an owner could not renew: {renewed}"
    released = await caller.store.settle([Release(one.id, one.token, one.nonce) for one in own], timeout=TIMEOUT)
    return Counter(answer.verdict for answer in released)[Verdict.OK]


def key_orders(keys: list[str], number: int) -> list[list[str]]:
    """Return the keys forwards, backwards, and shuffled (always in the same way)."""
    rng = random.Random(39)
    return [keys, keys[::-1], *(rng.sample(keys, len(keys)) for _ in range(number - 2))]


def assert_one_winner(answers: list[Answer], attempt: int) -> Record:
    """Assert that one caller acquired the key and that the others got the winner's record."""
    winners = [answer for answer in answers if answer.verdict is Verdict.ACQUIRED]
    assert len(winners) == 1, (
        f"{len(winners)} of {len(answers)} acquired: {[str(answer.verdict) for answer in answers]}"
    )
    winner = expect(winners[0], Verdict.ACQUIRED)
    assert winner.attempt == attempt, f"the winner is on attempt {winner.attempt} instead of {attempt}"
    for answer in answers:
        shown = expect(answer, Verdict.ACQUIRED, Verdict.RUNNING)
        assert (shown.token, shown.nonce) == (winner.token, winner.nonce), f"a loser got {shown} instead of {winner}"
    return winner
