"""Checks of the database itself: answers match what is stored, and calls without effect write nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import Any

from onceward.protocol.record import Record
from onceward.protocol.requests import Resolution, Validity, Verdict

from .factory import StoreFactory, check
from .harness import LEASE, SECOND, SHORT_LEASE, Harness, altered_owner, assert_equal, expect, id_of

REQUIRED_FIELDS = ("state", "token", "nonce", "attempt", "lease_until", "result")
"""Fields that the `raw` hook must return: without them the checks would prove nothing."""


class RawChecks(StoreFactory):
    """These checks use the hooks `raw` and `writes`, and are skipped without them."""

    @check(rival=(1,))
    async def test_answers_match_the_database(self, harness: Harness) -> None:
        caller = await harness.caller()
        held = await caller.acquire(fingerprint=b"\1payload", owner="worker", max_attempts=3)
        self.assert_on_disk(harness, held)
        self.assert_on_disk(harness, expect(await caller.renew(held, lease=2 * LEASE), Verdict.OK))
        self.assert_on_disk(harness, expect(await caller.fail(held, error_type="ValueError", error="no"), Verdict.OK))
        again = await caller.acquire()
        self.assert_on_disk(harness, again)
        self.assert_on_disk(harness, expect(await caller.park(again), Verdict.OK))
        self.assert_on_disk(
            harness, expect(await caller.complete(again, b"", validity=Validity(lasting=SECOND)), Verdict.OK)
        )
        self.assert_on_disk(harness, expect(await caller.forget(), Verdict.OK))

    def assert_on_disk(self, harness: Harness, answered: Record) -> None:
        raw = self.raw(harness.directory, answered.id)
        assert raw is not None, f"the store returned {answered}, but the database has no such record"
        missing = [name for name in REQUIRED_FIELDS if name not in raw]
        assert not missing, f"raw() must return {missing}"
        wrong = {
            name: (getattr(answered, name), value)
            for name, value in raw.items()
            if getattr(answered, name, value) != value
        }
        assert not wrong, f"the answer and the database differ: {wrong}"

    @check(fault=("F66",), needs=("fake_clock",))
    async def test_purge_deletes_the_stored_record(self, harness: Harness) -> None:
        caller = await harness.caller()
        expect(await caller.release(await caller.acquire()), Verdict.OK)
        assert self.raw(harness.directory, id_of("key")) is not None, "raw() does not find an existing record"
        harness.move_clock(LEASE * 100)
        assert_equal(await caller.purge(), 1, "old records that a purge finds")
        assert self.raw(harness.directory, id_of("key")) is None, (
            "purge counted the record, but it is still in the database"
        )

    @check(mission=("C7",), fault=("F41",))
    async def test_calls_without_effect_write_nothing(self, harness: Harness) -> None:
        caller = await harness.caller()
        running, done, failed, parked = [await caller.acquire(name) for name in ("running", "done", "failed", "parked")]
        slide = Validity(lasting=LEASE, slide=LEASE)
        expect(await caller.complete(done, b"it", validity=slide), Verdict.OK)
        expect(await caller.fail(failed, final=True), Verdict.OK)
        expect(await caller.park(parked), Verdict.OK)
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "a replay": partial(caller.claim, "done"),
            "a claim of a running key": partial(caller.claim, "running"),
            "a claim of a failed key": partial(caller.claim, "failed"),
            "a claim of a parked key": partial(caller.claim, "parked"),
            "a repeated claim": partial(caller.claim, "running", nonce=running.nonce),
            "a repeated completion": partial(caller.complete, done, b"it", validity=slide),
            "a conflict": partial(caller.complete, done, b"other"),
            "requests with a wrong token": partial(caller.owner_requests, altered_owner(running, token=1)),
            "an outdated resolution": partial(caller.resolve, altered_owner(parked, token=-1), Resolution.ABANDON),
            "a refused forget": partial(caller.forget, "running"),
            "a forget of a missing record": partial(caller.forget, "never claimed"),
            "a purge without expired records": caller.purge,
            "a read": partial(caller.read, "done"),
        }
        for name, call in calls.items():
            before = self.writes(harness.directory)
            await call()
            assert self.writes(harness.directory) == before, f"{name} wrote to the database"

    @check()
    async def test_the_writes_hook_detects_writes(self, harness: Harness) -> None:
        """Otherwise `test_calls_without_effect_write_nothing` could not fail."""
        caller = await harness.caller()
        seen = [self.writes(harness.directory)]
        held = await caller.acquire(lease=SHORT_LEASE)
        seen.append(self.writes(harness.directory))
        expect(await caller.renew(held), Verdict.OK)
        seen.append(self.writes(harness.directory))
        expect(await caller.complete(held), Verdict.OK)
        seen.append(self.writes(harness.directory))
        assert all(one != other for one, other in pairwise(seen)), f"writes() returns {seen}"
