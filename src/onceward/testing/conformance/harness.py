"""The harness of every check: a private directory, a clock, and callers, each with its own store."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import SkipTest

from msgspec.structs import replace

from onceward.protocol.audit import AuditEntry, AuditFilter, AuditSignature
from onceward.protocol.ports import Clock, Store
from onceward.protocol.record import Record
from onceward.protocol.requests import (
    Answer,
    AnySettlement,
    ClaimRequest,
    Complete,
    Fail,
    Park,
    Release,
    Renewal,
    Resolution,
    Resolve,
    Verdict,
)
from onceward.protocol.runtime import Runtime
from onceward.runtime.threads import nonce as new_nonce
from onceward.stores.clock import WallClock
from onceward.testing.clock import FakeClock

from .runtimes import Job, RuntimeKind

if TYPE_CHECKING:
    from .factory import StoreFactory

T = TypeVar("T")

TIMEOUT = 30.0
"""Seconds for one store call: long, since no check is about speed."""

LEASE = 600 * 1_000_000
"""Longer than any check takes."""

SHORT_LEASE = 50_000
"""A lease that expires during `elapse()`.

It is short because a store with its own clock makes the check really wait.
"""

MAX_PAGES = 10_000
"""Limit of pages: a page with a cursor may be short or empty, so the number of records does not limit them."""

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR


def id_of(key: str, scope: str = "kit") -> bytes:
    return hashlib.sha256(f"{scope}\0{key}".encode()).digest()


def claim_request(key: str, *, scope: str = "kit", lease: int | None = LEASE, **more: Any) -> ClaimRequest:
    """Return a claim request for this key with a new nonce."""
    more = {"id": id_of(key, scope), "nonce": new_nonce(), **more}
    return ClaimRequest(scope=scope, key=key, lease=lease, **more)


def expect(answer: Answer, *verdicts: Verdict) -> Record:
    """Assert that the answer has one of these verdicts, and return its record."""
    wanted = " or ".join(verdicts)
    assert answer.verdict in verdicts, f"the store returns {answer.verdict} instead of {wanted}, with {answer.record}"
    assert isinstance(answer.verdict, Verdict), f"{answer.verdict!r} must be a Verdict"
    assert answer.record is not None, f"the answer {answer.verdict} must contain the current record"
    return answer.record


def differences(wanted: Record | None, seen: Record | None) -> str:
    """Return which fields differ, for the message of a failing check; empty if none do."""
    if wanted is None or seen is None:
        return "" if wanted is seen else f"record: expected {wanted}, got {seen}"
    pairs = [(name, getattr(wanted, name), getattr(seen, name)) for name in Record.__struct_fields__]
    return "; ".join(
        f"{name}: expected {left!r}, got {right!r}"
        for name, left, right in pairs
        if left != right or type(left) is not type(right)
    )


def assert_equal(seen: object, wanted: object, what: str) -> None:
    assert seen == wanted, f"{what}: expected {wanted!r:.300}, got {seen!r:.300}"


def assert_same(wanted: Record | None, seen: Record | None, when: str) -> None:
    different = differences(wanted, seen)
    assert not different, f"{when}: {different}"


class Caller:
    """A client with its own store that sends one request at a time."""

    def __init__(self, store: Store, runtime: Runtime, fake_clock: FakeClock | None) -> None:
        self.store = store
        self.runtime = runtime
        self._fake_clock = fake_clock

    async def now(self) -> int:
        """Return the store's time: that of the fake clock, or that in an answer."""
        if self._fake_clock is not None:
            return self._fake_clock.now()
        [answer] = await self.store.read([id_of("time")], timeout=TIMEOUT)
        return answer.now

    def capability(self, name: str) -> Any:
        """Return an optional part of the store. If the store does not have it, the check is skipped."""
        found = getattr(self.store, name)
        if found is None:
            raise SkipTest(f"this store has no {name}")
        return found

    async def claim(self, key: str = "key", **how: Any) -> Answer:
        return await self.send(claim_request(key, **how))

    async def acquire(self, key: str = "key", **how: Any) -> Record:
        return expect(await self.claim(key, **how), Verdict.ACQUIRED)

    async def send(self, request: ClaimRequest) -> Answer:
        [answer] = await self.store.claim([request], timeout=TIMEOUT)
        return answer

    async def settle(self, settlement: AnySettlement) -> Answer:
        [answer] = await self.store.settle([settlement], timeout=TIMEOUT)
        return answer

    async def renew(self, held: Record, *, lease: int = LEASE, **more: Any) -> Answer:
        [answer] = await self.store.renew([Renewal(held.id, held.token, held.nonce, lease, **more)], timeout=TIMEOUT)
        return answer

    async def complete(self, held: Record, result: bytes | None = b"done", **more: Any) -> Answer:
        """Complete the claim. If that succeeds, the answer contains the stored record: the store may leave it out."""
        digest = hashlib.sha256(b"none" if result is None else b"some" + result).digest()
        more = {"digest": digest, **more}
        answer = await self.settle(Complete(held.id, held.token, held.nonce, result=result, **more))
        if answer.verdict is not Verdict.OK:
            return answer
        [stored] = await self.store.read([held.id], timeout=TIMEOUT)
        if answer.record is not None:
            assert_same(answer.record, stored.record, "the record in the answer to a completion")
        return Answer(answer.verdict, stored.record, answer.now)

    async def fail(self, held: Record, **more: Any) -> Answer:
        return await self.settle(Fail(held.id, held.token, held.nonce, **more))

    async def park(self, held: Record, **more: Any) -> Answer:
        return await self.settle(Park(held.id, held.token, held.nonce, **more))

    async def release(self, held: Record) -> Answer:
        return await self.settle(Release(held.id, held.token, held.nonce))

    async def resolve(
        self, seen: Record, resolution: Resolution, *, signed: AuditSignature | None = None, **more: Any
    ) -> Answer:
        request = Resolve(seen.id, seen.token, resolution, **more)
        [answer] = await self.store.settle([request], timeout=TIMEOUT, signed=signed)
        return answer

    async def forget(self, key: str = "key", *, force: bool = False, **more: Any) -> Answer:
        [answer] = await self.store.forget([id_of(key)], force=force, timeout=TIMEOUT, **more)
        return answer

    async def read(self, key: str = "key", *, id: bytes | None = None) -> Record | None:
        [answer] = await self.store.read([id or id_of(key)], timeout=TIMEOUT)
        assert answer.verdict is (Verdict.ABSENT if answer.record is None else Verdict.OK), (
            f"read returns {answer.verdict}"
        )
        return answer.record

    async def record(self, key: str = "key", *, id: bytes | None = None) -> Record:
        record = await self.read(key, id=id)
        assert record is not None, f"the record of {id or key!r} is not there"
        return record

    async def purge(self, limit: int = 1_000, **more: Any) -> int:
        return await self.store.purge(limit, timeout=TIMEOUT, **more)

    async def audit(self, limit: int = 100, **wanted: Any) -> list[AuditEntry]:
        return await self.store.audit(AuditFilter(**wanted), limit=limit, timeout=TIMEOUT)

    async def owner_requests(self, held: Record) -> dict[str, Answer]:
        """Send every request that an owner may send, one after the other."""
        return {
            "renew": await self.renew(held, note={"by": "a zombie"}),
            "renew without a note": await self.renew(held),
            "complete": await self.complete(held, b"of a zombie"),
            "fail": await self.fail(held, error="of a zombie", final=True),
            "park": await self.park(held, error="of a zombie"),
            "release": await self.release(held),
        }


class Harness:
    """The environment of one check."""

    def __init__(self, kit: StoreFactory, mode: RuntimeKind, directory: Path) -> None:
        self.kit = kit
        self.runtime_kind = mode
        self.directory = directory
        self.fake_clock = FakeClock() if kit.fake_clock else None
        self.clock: Clock = self.fake_clock or WallClock()
        self._opened: list[Caller] = []

    def use_wall_clock(self) -> None:
        """Use the real time, which child processes share."""
        self.fake_clock = None
        self.clock = WallClock()

    async def caller(self, store: Store | None = None) -> Caller:
        """Return a new caller with its own connection to the same data (or with this store, not yet open)."""
        store = store or self.kit.open(self.directory, self.clock)
        runtime = self.runtime_kind.new_runtime()
        await store.open(runtime)
        self._opened.append(Caller(store, runtime, self.fake_clock))
        return self._opened[-1]

    async def callers(self, number: int) -> list[Caller]:
        return [await self.caller() for _ in range(number)]

    async def close_caller(self, caller: Caller) -> None:
        await caller.store.close()
        self.runtime_kind.close_runtime(caller.runtime)
        self._opened.remove(caller)

    async def close(self) -> None:
        for caller in tuple(self._opened):
            await self.close_caller(caller)

    async def run_concurrently(self, jobs: Sequence[Job[T]]) -> list[T]:
        return await self.runtime_kind.run_concurrently(jobs)

    async def elapse(self, duration: int = SHORT_LEASE) -> None:
        """Let `duration` (µs) pass: advance the fake clock, or really wait."""
        if self.fake_clock is not None:
            self.fake_clock.advance_microseconds(duration)
        else:
            await self.sleep((duration + 5_000) / SECOND)

    async def sleep(self, seconds: float) -> None:
        """Wait in real time, while other jobs run."""
        await self.runtime_kind.new_runtime().sleep(seconds)

    def move_clock(self, duration: int) -> None:
        """Move the fake clock by hours or days, forwards or (negative) backwards."""
        assert self.fake_clock is not None, 'a check that moves the clock must declare needs=("fake_clock",)'
        if duration < 0:
            self.fake_clock.set_back_microseconds(-duration)
        else:
            self.fake_clock.advance_microseconds(duration)

    def raw(self, key: str = "key") -> Mapping[str, object] | None:
        """Return the record as the database has it, or None if the kit has no `raw` hook."""
        try:
            return self.kit.raw(self.directory, id_of(key))
        except SkipTest:
            return None

    async def expired_owner(self, caller: Caller, key: str = "key", **how: Any) -> Record:
        """Acquire the key and let the lease expire. Return the record of the late owner."""
        held = await caller.acquire(key, **{"lease": SHORT_LEASE, **how})
        await self.elapse()
        return held


def altered_owner(held: Record, *, token: int) -> Record:
    """Return the owner's record with `token` added to its token: a caller that is not the owner."""
    return replace(held, token=held.token + token)


async def all_pages(fetch: Callable[[bytes | None], Awaitable[tuple[list[T], bytes | None]]], limit: int) -> list[T]:
    """Return the entries of all pages. `fetch` takes a cursor, and returns a page and the next cursor."""
    found: list[T] = []
    cursor: bytes | None = None
    for _ in range(MAX_PAGES):
        page, cursor = await fetch(cursor)
        assert len(page) <= limit, f"a page of {limit} has {len(page)} entries"
        found += page
        if cursor is None:
            return found
    raise AssertionError(f"there are more than {MAX_PAGES} pages")
