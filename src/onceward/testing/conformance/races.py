"""Races of threads and of tasks. What they guard is a counter that loses an increment whenever two are inside."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

from onceward.errors import OncewardError
from onceward.protocol.record import Record
from onceward.protocol.requests import Answer, ClaimRequest, Release, Renewal, Verdict

from .factory import StoreFactory, check
from .stage import LEASE, TIMEOUT, Caller, Stage, assert_equal, expect, wanting

PAUSE = 0.001
"""Seconds between the counter's read and its write: long enough for another thread or task to get in."""


class Tally:
    """A counter that is not atomic, on purpose. Remembers with which token each value was written."""

    def __init__(self, stage: Stage) -> None:
        self.value = 0
        self.tokens: list[int] = []
        self.abandoned = False
        self._stage = stage

    async def increment(self, token: int) -> None:
        seen = self.value
        await self._stage.pause(PAUSE)
        self.value = seen + 1
        self.tokens.append(token)


class RaceChecks(StoreFactory):
    """Many at once, one of them wins."""

    @check(mission=("B2", "C2"), rival=(18,))
    async def test_of_many_claimants_of_one_key_exactly_one_acquires(self, stage: Stage) -> None:
        callers = await stage.callers(6)
        for number in range(8):
            answers = await stage.together([partial(caller.claim, f"key {number}") for caller in callers])
            assert_one_winner(answers, attempt=1)

    @check(mission=("B2", "B7"), rival=(18,))
    async def test_many_claimants_may_share_one_store(self, stage: Stage) -> None:
        caller = await stage.caller()
        for number in range(8):
            answers = await stage.together([partial(caller.claim, f"key {number}") for _ in range(6)])
            assert_one_winner(answers, attempt=1)

    @check(mission=("A3", "A7"), fault=("F40",))
    async def test_of_many_who_take_over_a_lapsed_lease_exactly_one_wins(self, stage: Stage) -> None:
        callers = await stage.callers(6)
        for number in range(5):
            key = f"key {number}"
            late = await stage.lapsed(callers[0], key)
            answers = await stage.together([partial(caller.claim, key) for caller in callers])
            winner = assert_one_winner(answers, attempt=2)
            assert winner.token > late.token, f"token {winner.token} after {late.token}: a zombie would pass"
            expect(await callers[0].complete(late), Verdict.LOST)

    @check(mission=("A7",), fault=("F40", "F41"))
    async def test_the_late_owner_and_its_successor_do_not_both_win(self, stage: Stage) -> None:
        late, quick = await stage.callers(2)
        for number in range(10):
            key = f"key {number}"
            held = await stage.lapsed(late, key)
            jobs = [partial(late.complete, held, b"of the late one"), partial(quick.claim, key)]
            answers = await stage.together(jobs if number % 2 else jobs[::-1])
            outcome = {answer.verdict for answer in answers}
            assert outcome in ({Verdict.OK, Verdict.REPLAY}, {Verdict.LOST, Verdict.ACQUIRED}), (
                f"both or none won: {outcome}"
            )

    @check(mission=("C2",), rival=(18,))
    async def test_an_unsafe_counter_loses_nothing_behind_a_claim(self, stage: Stage) -> None:
        callers, times = await stage.callers(4), 4
        tally = Tally(stage)
        await stage.together([partial(count_up, stage, caller, tally, times) for caller in callers])
        assert tally.value == len(callers) * times, f"{len(callers) * times} increments, {tally.value} counted"
        assert tally.tokens == sorted(set(tally.tokens)), f"later owners need higher tokens: {tally.tokens}"

    @check(fault=("F39",))
    async def test_batches_in_different_orders_neither_deadlock_nor_share_a_key(self, stage: Stage) -> None:
        callers, keys = await stage.callers(4), [f"key {number}" for number in range(20)]
        batches = [[wanting(key) for key in order] for order in orders(keys, len(callers))]
        answers = await stage.together(
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
        settled = await stage.together(
            [partial(settle_own, caller, winners, batch) for caller, batch in zip(callers, batches, strict=True)]
        )
        assert sum(settled) == len(keys), f"{sum(settled)} of {len(keys)} owners could settle"

    @check(rival=(18,))
    async def test_two_requests_for_one_key_in_one_batch_never_both_win(self, stage: Stage) -> None:
        """The port forbids it; whoever does it anyway gets an error or one winner."""
        caller = await stage.caller()
        try:
            answers = await caller.store.claim([wanting("key"), wanting("other"), wanting("key")], timeout=TIMEOUT)
        except (OncewardError, ValueError):
            return
        won = [answer.record.id for answer in answers if answer.verdict is Verdict.ACQUIRED and answer.record]
        assert len(won) == len(set(won)), f"two requests for one key both won: {answers}"


async def count_up(stage: Stage, caller: Caller, tally: Tally, times: int) -> None:
    """Claim, increment, release; whoever finds the key taken tries again, as long as nobody gave up."""
    try:
        while times and not tally.abandoned:
            answer = await caller.claim()
            held = expect(answer, Verdict.ACQUIRED, Verdict.RUNNING)
            if answer.verdict is Verdict.RUNNING:
                await stage.pause(PAUSE)
                continue
            await tally.increment(held.token)
            expect(await caller.release(held), Verdict.OK)
            times -= 1
    except BaseException:
        tally.abandoned = True
        raise


async def settle_own(caller: Caller, winners: list[Record], batch: list[ClaimRequest]) -> int:
    """Renew and release what this caller's batch won, in the batch's order; how many could be released."""
    by_nonce = {winner.nonce: winner for winner in winners}
    own = [by_nonce[one.nonce] for one in batch if one.nonce in by_nonce]
    renewed = await caller.store.renew([Renewal(one.id, one.token, one.nonce, LEASE) for one in own], timeout=TIMEOUT)
    assert all(answer.verdict is Verdict.OK for answer in renewed), f"an owner could not renew: {renewed}"
    released = await caller.store.settle([Release(one.id, one.token, one.nonce) for one in own], timeout=TIMEOUT)
    return Counter(answer.verdict for answer in released)[Verdict.OK]


def orders(keys: list[str], number: int) -> list[list[str]]:
    """The keys forwards, backwards, and shuffled (the same way each time)."""
    dice = random.Random(39)
    return [keys, keys[::-1], *(dice.sample(keys, len(keys)) for _ in range(number - 2))]


def assert_one_winner(answers: list[Answer], attempt: int) -> Record:
    """One acquired, and everybody else was shown the winner at work."""
    winners = [answer for answer in answers if answer.verdict is Verdict.ACQUIRED]
    assert len(winners) == 1, (
        f"{len(winners)} of {len(answers)} acquired: {[str(answer.verdict) for answer in answers]}"
    )
    winner = expect(winners[0], Verdict.ACQUIRED)
    assert winner.attempt == attempt, f"the winner is on attempt {winner.attempt} instead of {attempt}"
    for answer in answers:
        shown = expect(answer, Verdict.ACQUIRED, Verdict.RUNNING)
        assert (shown.token, shown.nonce) == (winner.token, winner.nonce), (
            f"a loser was shown {shown} instead of {winner}"
        )
    return winner
