"""What every check stands on: a private place, a clock, and callers with a store of their own each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
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
from onceward.runtime.nonce import nonce as new_nonce
from onceward.stores.clock import WallClock
from onceward.testing.clock import FakeClock

from .runtimes import Job, RuntimeKind

if TYPE_CHECKING:
    from .factory import StoreFactory

T = TypeVar("T")

TIMEOUT = 30.0
"""Seconds for one store call: generous, since no check is about slowness."""

LEASE = 600 * 1_000_000
"""Lives longer than any check."""

SHORT = 50_000
"""A lease that `lapse()` outlives: short, because a store with a clock of its own makes us really wait."""

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR


def id_of(key: str, scope: str = "kit") -> bytes:
    return hashlib.sha256(f"{scope}\0{key}".encode()).digest()


def wanting(key: str, *, scope: str = "kit", lease: int | None = LEASE, **more: Any) -> ClaimRequest:
    """A claim of this key with a nonce of its own."""
    more = {"id": id_of(key, scope), "nonce": new_nonce(), **more}
    return ClaimRequest(scope=scope, key=key, lease=lease, **more)


def expect(answer: Answer, *verdicts: Verdict) -> Record:
    """The record of an answer that must be one of these."""
    wanted = " or ".join(verdicts)
    assert answer.verdict in verdicts, f"the store says {answer.verdict} instead of {wanted}, and shows {answer.record}"
    assert isinstance(answer.verdict, Verdict), f"{answer.verdict!r} must be a Verdict"
    assert answer.record is not None, f"the answer {answer.verdict} must carry the record as it is now"
    return answer.record


def differences(wanted: Record | None, seen: Record | None) -> str:
    """Which fields differ, for the message of a failing check. Empty if none."""
    if wanted is None or seen is None:
        return "" if wanted is seen else f"record: wanted {wanted}, seen {seen}"
    pairs = [(name, getattr(wanted, name), getattr(seen, name)) for name in Record.__struct_fields__]
    return "; ".join(
        f"{name}: wanted {mine!r}, seen {its!r}"
        for name, mine, its in pairs
        if mine != its or type(mine) is not type(its)
    )


def assert_equal(seen: object, wanted: object, what: str) -> None:
    assert seen == wanted, f"{what}: wanted {wanted!r:.300}, seen {seen!r:.300}"


def assert_same(wanted: Record | None, seen: Record | None, when: str) -> None:
    different = differences(wanted, seen)
    assert not different, f"{when}: {different}"


class Caller:
    """Somebody with a store of their own, who asks for one thing at a time."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self.store = store
        self.runtime = runtime

    async def claim(self, key: str = "key", **how: Any) -> Answer:
        return await self.send(wanting(key, **how))

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
        digest = hashlib.sha256(b"none" if result is None else b"some" + result).digest()
        more = {"digest": digest, **more}
        return await self.settle(Complete(held.id, held.token, held.nonce, result=result, of=held, **more))

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

    async def look(self, key: str = "key", *, id: bytes | None = None) -> Record | None:
        [answer] = await self.store.read([id or id_of(key)], timeout=TIMEOUT)
        assert answer.verdict is (Verdict.ABSENT if answer.record is None else Verdict.OK), (
            f"read says {answer.verdict}"
        )
        return answer.record

    async def record(self, key: str = "key", *, id: bytes | None = None) -> Record:
        record = await self.look(key, id=id)
        assert record is not None, f"the record of {id or key!r} is not there"
        return record

    async def purge(self, limit: int = 1_000, **more: Any) -> int:
        return await self.store.purge(limit, timeout=TIMEOUT, **more)

    async def audit(self, limit: int = 100, **wanted: Any) -> list[AuditEntry]:
        return await self.store.audit(AuditFilter(**wanted), limit=limit, timeout=TIMEOUT)

    async def owners_verbs(self, held: Record) -> dict[str, Answer]:
        """Everything that an owner may do, one after the other."""
        return {
            "renew": await self.renew(held, note={"by": "a zombie"}),
            "renew without a word": await self.renew(held),
            "complete": await self.complete(held, b"of a zombie"),
            "fail": await self.fail(held, error="of a zombie", final=True),
            "park": await self.park(held, error="of a zombie"),
            "release": await self.release(held),
        }


class Stage:
    """The surroundings of one check."""

    def __init__(self, kit: StoreFactory, mode: RuntimeKind, place: Path) -> None:
        self.kit = kit
        self.mode = mode
        self.place = place
        self.fake = FakeClock() if kit.fake_clock else None
        self.clock: Clock = self.fake or WallClock()
        self._opened: list[Caller] = []

    async def caller(self, store: Store | None = None) -> Caller:
        """One more caller, with a connection of its own to the same data (or with this store, not yet open)."""
        store = store or self.kit.open(self.place, self.clock)
        runtime = self.mode.runtime()
        await store.open(runtime)
        self._opened.append(Caller(store, runtime))
        return self._opened[-1]

    async def callers(self, number: int) -> list[Caller]:
        return [await self.caller() for _ in range(number)]

    async def dismiss(self, caller: Caller) -> None:
        await caller.store.close()
        self.mode.leave(caller.runtime)
        self._opened.remove(caller)

    async def end(self) -> None:
        for caller in tuple(self._opened):
            await self.dismiss(caller)

    async def together(self, jobs: Sequence[Job[T]]) -> list[T]:
        return await self.mode.together(jobs)

    async def lapse(self, duration: int = SHORT) -> None:
        """Let time pass: the fake clock's, or really."""
        if self.fake is not None:
            self.fake.advance_microseconds(duration)
        else:
            await self.pause((duration + 5_000) / SECOND)

    async def pause(self, seconds: float) -> None:
        """Real time, during which others run."""
        await self.mode.runtime().sleep(seconds)

    def turn(self, duration: int) -> None:
        """Hours and days, for checks that need the fake clock."""
        assert self.fake is not None, 'a check that turns the clock must say needs=("fake_clock",)'
        if duration < 0:
            self.fake.set_back_microseconds(-duration)
        else:
            self.fake.advance_microseconds(duration)

    def raw(self, key: str = "key") -> Mapping[str, object] | None:
        """What the database holds, past the store; without the hook, nothing to compare."""
        try:
            return self.kit.raw(self.place, id_of(key))
        except SkipTest:
            return None

    async def lapsed(self, caller: Caller, key: str = "key", **how: Any) -> Record:
        """An owner who fell silent."""
        held = await caller.acquire(key, **{"lease": SHORT, **how})
        await self.lapse()
        return held


def stranger(held: Record, *, token: int = 0, nonce: bytes | None = None) -> Record:
    """Somebody who is nearly the owner: another token, or another nonce."""
    return replace(held, token=held.token + token, nonce=held.nonce if nonce is None else nonce)
