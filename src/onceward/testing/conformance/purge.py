"""Purge deletes what answers for nothing any more, and nothing else, also while others claim."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.record import AfterCrash, Record
from onceward.protocol.requests import Answer, Validity, Verdict
from onceward.protocol.transitions import CLOCK_MARGIN

from .factory import StoreFactory, check
from .races import assert_one_winner, orders
from .stage import DAY, HOUR, SECOND, SHORT, Caller, Stage, assert_same, expect

Setup = Callable[[Caller, str], Awaitable[Record]]

OVER = Validity(lasting=SECOND)


async def settled(caller: Caller, key: str, verb: str, **how: object) -> Record:
    return expect(await getattr(caller, verb)(await caller.acquire(key), **how), Verdict.OK)


async def claimed(caller: Caller, key: str, **how: object) -> Record:
    return await caller.acquire(key, **how)


KEPT: dict[str, Setup] = {
    "live": partial(claimed, lease=100 * 365 * DAY),
    "held without a lease": partial(claimed, lease=None),
    "lapsed, of late": partial(claimed, lease=KEEP_UNFINISHED),
    "lapsed, to be parked": partial(claimed, lease=SHORT, after_crash=AfterCrash.PARK),
    "lapsed, to be verified": partial(claimed, lease=SHORT, after_crash=AfterCrash.VERIFY),
    "lapsed, attempts used up": partial(claimed, lease=SHORT, max_attempts=1),
    "parked": partial(settled, verb="park"),
    "completed for ever": partial(settled, verb="complete"),
    "completed, in its window": partial(settled, verb="complete", validity=Validity(lasting=100 * DAY)),
    "failed for ever": partial(settled, verb="fail", final=True),
    "failed, retried later": partial(settled, verb="fail", retry_in=20 * DAY),
}
"""What must survive any purge 40 days later."""

GONE: dict[str, Setup] = {
    "free": partial(settled, verb="release"),
    "completed, over": partial(settled, verb="complete", validity=OVER),
    "failed for good, over": partial(settled, verb="fail", final=True, validity=OVER),
    "failed, never retried": partial(settled, verb="fail"),
    "lapsed, never taken over": partial(claimed, lease=SHORT),
}
"""What must be gone 40 days later, after enough purging."""


class PurgeChecks(StoreFactory):
    """Needs the fake clock: purge thinks in hours and months."""

    @check(mission=("E7",), rival=(28,), needs=("fake_clock",))
    async def test_purge_deletes_all_that_answers_for_nothing_in_batches(self, stage: Stage) -> None:
        caller = await stage.caller()
        for name, setup in {**KEPT, **GONE}.items():
            await setup(caller, name)
        stage.turn(40 * DAY)
        kept = {name: await caller.record(name) for name in KEPT}
        batches: list[int] = []
        while batches[-1:] != [0]:
            batches.append(await caller.purge(2))
            assert batches[-1] <= 2, f"purge(2) deleted {batches[-1]}"
            assert len(batches) < 100, "purge never says that nothing is left"
        for name in GONE:
            assert await caller.look(name) is None, f"purge never deletes what is {name}"
        for name, record in kept.items():
            assert_same(record, await caller.look(name), f"purge touched what is {name}")

    @check(rival=(22,), needs=("fake_clock",))
    async def test_purge_spares_young_tokens(self, stage: Stage) -> None:
        """A key that was over within the margin may come back under a clock that was set back by it."""
        caller = await stage.caller()
        for name in ("free", "completed, over"):
            await GONE[name](caller, name)
        stage.turn(CLOCK_MARGIN)
        assert await caller.purge() == 0, "purge deleted a token that is younger than the clock's margin"
        stage.turn(SECOND)
        assert await caller.purge() == 2, "purge spares old tokens too"

    @check(needs=("fake_clock",))
    async def test_purge_follows_a_key_that_came_back(self, stage: Stage) -> None:
        caller = await stage.caller()
        await GONE["completed, over"](caller, "key")
        stage.turn(2 * HOUR)
        held = await caller.acquire(lease=DAY)
        stage.turn(2 * HOUR)
        assert await caller.purge() == 0, "purge deleted a live record, because an earlier life of its key was over"
        assert_same(held, await caller.record(), "after the purge")
        expect(await caller.complete(held), Verdict.OK)

    @check(fault=("F66",), needs=("fake_clock",))
    async def test_purge_racing_claims_lets_nobody_in_twice(self, stage: Stage) -> None:
        claimants, purgers = await stage.callers(3), await stage.callers(2)
        for number in range(3):
            keys = [f"{number}: {one}" for one in range(8)]
            before = [await GONE["completed, over"](claimants[0], key) for key in keys]
            stage.turn(2 * HOUR)
            jobs = [partial(claim_all, caller, order) for caller, order in zip(claimants, orders(keys, 3), strict=True)]
            purges = [partial(purge_on, caller, len(keys)) for caller in purgers]
            answers = await stage.together([*jobs, *purges] if number % 2 else [*purges, *jobs])
            for key, old in zip(keys, before, strict=True):
                winner = assert_one_winner([one[key] for one in answers if one], attempt=1)
                assert winner.token > old.token, f"token {winner.token} after {old.token}: a zombie would pass"
                assert_same(winner, await claimants[0].look(key), "the winner's record after the race")


async def claim_all(caller: Caller, keys: list[str]) -> dict[str, Answer]:
    return {key: await caller.claim(key, lease=100 * DAY) for key in keys}


async def purge_on(caller: Caller, times: int) -> dict[str, Answer]:
    for _ in range(times):
        await caller.purge(3)
    return {}
