"""Lookup without a claim (`store.lookup`): it returns what a claim would replay, and nothing else."""

from __future__ import annotations

from typing import Any

from onceward.protocol.record import READER, AfterCrash, CompletedRecord, Record
from onceward.protocol.requests import Validity, Verdict
from onceward.protocol.transitions import replays

from .factory import StoreFactory, check
from .harness import SECOND, TIMEOUT, Caller, Harness, assert_same, expect, id_of

LOOKUP_FIELDS = tuple(name for name in vars(CompletedRecord) if isinstance(vars(CompletedRecord)[name], property))
"""The fields of a record that a lookup returns."""

MAX_TRIES = 3
"""A lookup may return nothing because the store must reconnect first. Then the check reads a record and tries again."""

FINGERPRINTS = (b"", b"\1one", b"\1two", b"\2one")
"""No fingerprint, two of one encoder version, and one of another version."""


async def assert_lookup(caller: Caller, record: Record | None, id: bytes, when: str, fingerprint: bytes = b"") -> None:
    """Assert that a lookup returns the record if, and only if, a claim would replay it and write nothing."""
    store: Any = caller.store
    found, wanted = None, False
    for _ in range(MAX_TRIES):
        before = await caller.now()
        found = store.lookup(id, fingerprint)
        after = await caller.now()
        wanted = record is not None and replays(record, fingerprint, before)
        if wanted != (record is not None and replays(record, fingerprint, after)) or wanted == (found is not None):
            break
        await store.read([id], timeout=TIMEOUT)
    else:
        expected = "return it" if wanted else f"return nothing, not {found}"
        raise AssertionError(f"{when}: a lookup of {record} with the fingerprint {fingerprint!r} must {expected}")
    for name in LOOKUP_FIELDS if found is not None and record is not None else ():
        seen, stored = getattr(found, name), getattr(record, name)
        assert seen == stored, f"{when}: a lookup returns {name}={seen!r} instead of {stored!r}"


async def lookup_caller(harness: Harness) -> Caller:
    caller = await harness.caller()
    caller.capability("lookup")
    return caller


class LookupChecks(StoreFactory):
    """For stores that return completed records without a claim; skipped for others."""

    @check(rival=(26,), fault=("F18",))
    async def test_a_lookup_returns_only_what_a_claim_would_replay(self, harness: Harness) -> None:
        caller = await lookup_caller(harness)
        held = {key: await caller.acquire(key, fingerprint=b"\1one") for key in KEYS}
        await caller.complete(held["done"])
        await caller.complete(held["done without its result"], None, stored=False)
        await caller.complete(held["done until soon"], validity=Validity(lasting=SECOND // 2))
        await caller.fail(held["failed"])
        await caller.fail(held["failed for good"], final=True)
        await caller.park(held["parked"])
        await caller.release(held["free"])
        await caller.complete(await caller.acquire("done again", lease=1, after_crash=AfterCrash.RERUN))
        for when in ("immediately", "later"):
            for key in (*KEYS, "done again", "never claimed"):
                record = await caller.read(key)
                for fingerprint in FINGERPRINTS:
                    await assert_lookup(caller, record, id_of(key), f"{key}, {when}", fingerprint)
                if record is not None:
                    assert_same(record, await caller.record(key), "a lookup must change nothing")
            await harness.elapse(SECOND // 2)

    @check(rival=(26,))
    async def test_a_lookup_does_not_extend_a_sliding_window(self, harness: Harness) -> None:
        caller = await lookup_caller(harness)
        slide = 8 * SECOND if harness.fake_clock else 800_000
        validity = Validity(lasting=slide, slide=slide)
        done = expect(await caller.complete(await caller.acquire(), validity=validity), Verdict.OK)
        await assert_lookup(caller, done, done.id, "in the first eighth")
        await harness.elapse(slide // 4)
        await assert_lookup(caller, done, done.id, "after an eighth")
        moved = expect(await caller.claim(), Verdict.REPLAY)
        await assert_lookup(caller, moved, done.id, "after a claim has extended it")

    @check(fault=("F67",))
    async def test_a_lookup_ignores_records_of_a_newer_version(self, harness: Harness) -> None:
        caller = await lookup_caller(harness)
        done = expect(await caller.complete(await caller.acquire()), Verdict.OK)
        self.overwrite(harness.directory, done.id, min_reader=READER + 1)
        await assert_lookup(caller, await caller.record(), done.id, "written by a newer version")


KEYS = (
    "running",
    "done",
    "done without its result",
    "done until soon",
    "failed",
    "failed for good",
    "parked",
    "free",
)
