"""Purge deletes expired records and nothing else, even during concurrent claims."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.record import AfterCrash, Record
from onceward.protocol.requests import Answer, Validity, Verdict
from onceward.protocol.transitions import CLOCK_MARGIN

from .factory import StoreFactory, check
from .harness import DAY, HOUR, SECOND, SHORT_LEASE, Caller, Harness, assert_same, expect
from .races import assert_one_winner, key_orders

Setup = Callable[[Caller, str], Awaitable[Record]]

SHORT_WINDOW = Validity(lasting=SECOND)


async def settled(caller: Caller, key: str, verb: str, **how: object) -> Record:
    return expect(await getattr(caller, verb)(await caller.acquire(key), **how), Verdict.OK)


async def claimed(caller: Caller, key: str, **how: object) -> Record:
    return await caller.acquire(key, **how)


KEPT: dict[str, Setup] = {
    "live": partial(claimed, lease=100 * 365 * DAY),
    "held without a lease": partial(claimed, lease=None),
    "recently expired lease": partial(claimed, lease=KEEP_UNFINISHED),
    "expired lease, to be parked": partial(claimed, lease=SHORT_LEASE, after_crash=AfterCrash.PARK),
    "expired lease, to be verified": partial(claimed, lease=SHORT_LEASE, after_crash=AfterCrash.VERIFY),
    "expired lease, no attempts left": partial(claimed, lease=SHORT_LEASE, max_attempts=1),
    "parked": partial(settled, verb="park"),
    "completed without an end": partial(settled, verb="complete"),
    "completed, in its window": partial(settled, verb="complete", validity=Validity(lasting=100 * DAY)),
    "failed without an end": partial(settled, verb="fail", final=True),
    "failed, retried later": partial(settled, verb="fail", retry_in=20 * DAY),
}
"""Records that a purge 40 days later must keep."""

GONE: dict[str, Setup] = {
    "free": partial(settled, verb="release"),
    "completed, window ended": partial(settled, verb="complete", validity=SHORT_WINDOW),
    "failed finally, window ended": partial(settled, verb="fail", final=True, validity=SHORT_WINDOW),
    "failed, never retried": partial(settled, verb="fail"),
    "expired lease, never taken over": partial(claimed, lease=SHORT_LEASE),
}
"""Records that must be gone after enough purges 40 days later."""


class PurgeChecks(StoreFactory):
    """These checks need the fake clock, because purge works with hours and months."""

    @check(mission=("E7",), rival=(28,), needs=("fake_clock",))
    async def test_purge_deletes_all_expired_records_in_batches(self, harness: Harness) -> None:
        caller = await harness.caller()
        for name, setup in {**KEPT, **GONE}.items():
            await setup(caller, name)
        harness.move_clock(40 * DAY)
        kept = {name: await caller.record(name) for name in KEPT}
        batches: list[int] = []
        while batches[-1:] != [0]:
            batches.append(await caller.purge(2))
            assert batches[-1] <= 2, f"purge(2) deleted {batches[-1]}"
            assert len(batches) < 100, "purge never returns 0"
        for name in GONE:
            assert await caller.read(name) is None, f"purge does not delete: {name}"
        for name, record in kept.items():
            assert_same(record, await caller.read(name), f"purge changed: {name}")

    @check(rival=(22,), needs=("fake_clock",))
    async def test_purge_keeps_recent_tokens(self, harness: Harness) -> None:
        """If the clock is set back by less than the margin, a key that ended recently may be claimed again."""
        caller = await harness.caller()
        for name in ("free", "completed, window ended"):
            await GONE[name](caller, name)
        harness.move_clock(CLOCK_MARGIN)
        assert await caller.purge() == 0, "purge deleted a token that is more recent than the clock margin"
        harness.move_clock(SECOND)
        assert await caller.purge() == 2, "purge must delete tokens older than the clock margin"

    @check(needs=("fake_clock",))
    async def test_purge_keeps_a_key_that_was_claimed_again(self, harness: Harness) -> None:
        caller = await harness.caller()
        await GONE["completed, window ended"](caller, "key")
        harness.move_clock(2 * HOUR)
        held = await caller.acquire(lease=DAY)
        harness.move_clock(2 * HOUR)
        assert await caller.purge() == 0, "purge deleted a live record because an earlier cycle of its key had ended"
        assert_same(held, await caller.record(), "after the purge")
        expect(await caller.complete(held), Verdict.OK)

    @check(fault=("F66",), needs=("fake_clock",))
    async def test_a_purge_during_claims_grants_no_key_twice(self, harness: Harness) -> None:
        claimants, purgers = await harness.callers(3), await harness.callers(2)
        for number in range(3):
            keys = [f"{number}: {one}" for one in range(8)]
            before = [await GONE["completed, window ended"](claimants[0], key) for key in keys]
            harness.move_clock(2 * HOUR)
            jobs = [
                partial(claim_all, caller, order) for caller, order in zip(claimants, key_orders(keys, 3), strict=True)
            ]
            purges = [partial(purge_repeatedly, caller, len(keys)) for caller in purgers]
            answers = await harness.run_concurrently([*jobs, *purges] if number % 2 else [*purges, *jobs])
            for key, old in zip(keys, before, strict=True):
                winner = assert_one_winner([one[key] for one in answers if one], attempt=1)
                assert winner.token > old.token, f"token {winner.token} after {old.token}: a replaced owner would pass"
                assert_same(winner, await claimants[0].read(key), "the winner's record after the race")


async def claim_all(caller: Caller, keys: list[str]) -> dict[str, Answer]:
    return {key: await caller.claim(key, lease=100 * DAY) for key in keys}


async def purge_repeatedly(caller: Caller, times: int) -> dict[str, Answer]:
    for _ in range(times):
        await caller.purge(3)
    return {}
