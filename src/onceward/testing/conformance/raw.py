"""Past the store: what it says is what lies in the database, and what changes nothing writes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import Any

from onceward.protocol.record import Record
from onceward.protocol.requests import Resolution, Validity, Verdict

from .factory import StoreFactory, check
from .stage import LEASE, SECOND, SHORT, Stage, assert_equal, expect, id_of, stranger

TELLING = ("state", "token", "nonce", "attempt", "lease_until", "result")
"""Fields that a raw hook must show: without them nothing is proved."""


class RawChecks(StoreFactory):
    """Uses the hooks `raw` and `writes`; skipped where a store has none."""

    @check(rival=(1,))
    async def test_what_the_store_says_lies_in_the_database(self, stage: Stage) -> None:
        caller = await stage.caller()
        held = await caller.acquire(fingerprint=b"\1payload", owner="worker", max_attempts=3)
        self.assert_on_disk(stage, held)
        self.assert_on_disk(stage, expect(await caller.renew(held, lease=2 * LEASE), Verdict.OK))
        self.assert_on_disk(stage, expect(await caller.fail(held, error_type="ValueError", error="no"), Verdict.OK))
        again = await caller.acquire()
        self.assert_on_disk(stage, again)
        self.assert_on_disk(stage, expect(await caller.park(again), Verdict.OK))
        self.assert_on_disk(
            stage, expect(await caller.complete(again, b"", validity=Validity(lasting=SECOND)), Verdict.OK)
        )
        self.assert_on_disk(stage, expect(await caller.forget(), Verdict.OK))

    def assert_on_disk(self, stage: Stage, said: Record) -> None:
        raw = self.raw(stage.place, said.id)
        assert raw is not None, f"the store says {said}, but the database has no such record"
        missing = [name for name in TELLING if name not in raw]
        assert not missing, f"raw() must show {missing}"
        wrong = {
            name: (getattr(said, name), value) for name, value in raw.items() if getattr(said, name, value) != value
        }
        assert not wrong, f"said and stored differ: {wrong}"

    @check(fault=("F66",), needs=("fake_clock",))
    async def test_purge_really_deletes(self, stage: Stage) -> None:
        caller = await stage.caller()
        expect(await caller.release(await caller.acquire()), Verdict.OK)
        assert self.raw(stage.place, id_of("key")) is not None, "raw() does not show a record that is there"
        stage.turn(LEASE * 100)
        assert_equal(await caller.purge(), 1, "old records that a purge finds")
        assert self.raw(stage.place, id_of("key")) is None, "purge says that the record went, but it is there"

    @check(mission=("C7",), fault=("F41",))
    async def test_what_changes_nothing_writes_nothing(self, stage: Stage) -> None:
        caller = await stage.caller()
        running, done, failed, parked = [await caller.acquire(name) for name in ("running", "done", "failed", "parked")]
        slide = Validity(lasting=LEASE, slide=LEASE)
        expect(await caller.complete(done, b"it", validity=slide), Verdict.OK)
        expect(await caller.fail(failed, final=True), Verdict.OK)
        expect(await caller.park(parked), Verdict.OK)
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "a replay": partial(caller.claim, "done"),
            "a claim of what runs": partial(caller.claim, "running"),
            "a claim of what failed": partial(caller.claim, "failed"),
            "a claim of what is parked": partial(caller.claim, "parked"),
            "a repeated claim": partial(caller.claim, "running", nonce=running.nonce),
            "a repeated completion": partial(caller.complete, done, b"it", validity=slide),
            "a conflict": partial(caller.complete, done, b"other"),
            "verbs of a stranger": partial(caller.owners_verbs, stranger(running, token=1)),
            "a resolution too late": partial(caller.resolve, stranger(parked, token=-1), Resolution.ABANDON),
            "a refused forget": partial(caller.forget, "running"),
            "a forget of nothing": partial(caller.forget, "never claimed"),
            "a purge of nothing": caller.purge,
            "a read": partial(caller.look, "done"),
        }
        for name, call in calls.items():
            before = self.writes(stage.place)
            await call()
            assert self.writes(stage.place) == before, f"{name} wrote to the database"

    @check()
    async def test_the_hook_sees_what_is_written(self, stage: Stage) -> None:
        """Otherwise the check above could not fail."""
        caller = await stage.caller()
        seen = [self.writes(stage.place)]
        held = await caller.acquire(lease=SHORT)
        seen.append(self.writes(stage.place))
        expect(await caller.renew(held), Verdict.OK)
        seen.append(self.writes(stage.place))
        expect(await caller.complete(held), Verdict.OK)
        seen.append(self.writes(stage.place))
        assert all(one != other for one, other in pairwise(seen)), f"writes() says {seen}"
