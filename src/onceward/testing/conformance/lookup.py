"""A look without a claim (the port `SupportsLookup`): it shows what a claim would replay, and nothing else."""

from __future__ import annotations

from typing import Any
from unittest import SkipTest

from onceward.protocol.capabilities import SupportsLookup
from onceward.protocol.ports import Clock
from onceward.protocol.record import READER, AfterCrash, CompletedRecord, Record
from onceward.protocol.requests import Validity, Verdict
from onceward.protocol.transitions import replays

from .factory import StoreFactory, check
from .stage import SECOND, TIMEOUT, Caller, Stage, assert_same, expect, id_of

SHOWN = tuple(name for name in vars(CompletedRecord) if isinstance(vars(CompletedRecord)[name], property))
"""What a glance shows of a record."""

LOOKS = 3
"""A store may have to look after its connection first, and then shows nothing: it is asked again after a read."""

PAYLOADS = (b"", b"\1one", b"\1two", b"\2one")
"""None, two of one encoder version, and one of another."""


async def time_of(store: Any, id: bytes, clock: Clock | None) -> int:
    """The store's time: our clock's, or what an answer carries."""
    if clock is not None:
        return clock.now()
    [answer] = await store.read([id], timeout=TIMEOUT)
    now: int = answer.now
    return now


async def assert_shows(
    store: Any, record: Record | None, id: bytes, fingerprint: bytes, *, when: str, clock: Clock | None
) -> None:
    """That a glance answers if, and only if, a claim would replay and write nothing."""
    found, wanted = None, False
    for _ in range(LOOKS):
        before = await time_of(store, id, clock)
        found = store.lookup(id, fingerprint)
        after = await time_of(store, id, clock)
        wanted = record is not None and replays(record, fingerprint, before)
        if wanted != (record is not None and replays(record, fingerprint, after)) or wanted == (found is not None):
            break
        await store.read([id], timeout=TIMEOUT)
    else:
        shows = "show it" if wanted else f"show nothing, not {found}"
        raise AssertionError(f"{when}: a glance with the fingerprint {fingerprint!r} at {record} must {shows}")
    for name in SHOWN if found is not None and record is not None else ():
        seen, kept = getattr(found, name), getattr(record, name)
        assert seen == kept, f"{when}: a glance shows {name}={seen!r} instead of {kept!r}"


async def glancing(stage: Stage) -> Caller:
    caller = await stage.caller()
    if not isinstance(caller.store, SupportsLookup):
        raise SkipTest("this store has no glance()")
    return caller


class LookupChecks(StoreFactory):
    """For stores that show what is done without being asked for a claim."""

    @check(rival=(26,), fault=("F18",))
    async def test_a_glance_shows_what_a_claim_would_replay_and_nothing_else(self, stage: Stage) -> None:
        caller = await glancing(stage)
        held = {key: await caller.acquire(key, fingerprint=b"\1one") for key in ROWS}
        await caller.complete(held["done"])
        await caller.complete(held["done without its result"], None, stored=False)
        await caller.complete(held["done until soon"], validity=Validity(lasting=SECOND // 2))
        await caller.fail(held["failed"])
        await caller.fail(held["failed for good"], final=True)
        await caller.park(held["parked"])
        await caller.release(held["free"])
        await caller.complete(await caller.acquire("done again", lease=1, after_crash=AfterCrash.RERUN))
        for when in ("at once", "later"):
            for key in (*ROWS, "done again", "never heard of"):
                record = await caller.look(key)
                for fingerprint in PAYLOADS:
                    await assert_shows(
                        caller.store, record, id_of(key), fingerprint, when=f"{key}, {when}", clock=stage.fake
                    )
                if record is not None:
                    assert_same(record, await caller.record(key), "a glance must change nothing")
            await stage.lapse(SECOND // 2)

    @check(rival=(26,))
    async def test_a_glance_leaves_it_to_the_claim_to_move_a_window(self, stage: Stage) -> None:
        caller = await glancing(stage)
        slide = 8 * SECOND if stage.fake else 800_000
        validity = Validity(lasting=slide, slide=slide)
        done = expect(await caller.complete(await caller.acquire(), validity=validity), Verdict.OK)
        await assert_shows(caller.store, done, done.id, b"", when="in the first eighth", clock=stage.fake)
        await stage.lapse(slide // 4)
        await assert_shows(caller.store, done, done.id, b"", when="after an eighth", clock=stage.fake)
        moved = expect(await caller.claim(), Verdict.REPLAY)
        await assert_shows(caller.store, moved, done.id, b"", when="after a claim has moved it", clock=stage.fake)

    @check(fault=("F67",))
    async def test_a_glance_shows_nothing_of_a_newer_version(self, stage: Stage) -> None:
        caller = await glancing(stage)
        done = expect(await caller.complete(await caller.acquire()), Verdict.OK)
        self.plant(stage.place, done.id, min_reader=READER + 1)
        await assert_shows(
            caller.store, await caller.record(), done.id, b"", when="written by a newer version", clock=stage.fake
        )


ROWS = (
    "running",
    "done",
    "done without its result",
    "done until soon",
    "failed",
    "failed for good",
    "parked",
    "free",
)
