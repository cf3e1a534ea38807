"""A workload that visits most of the state table: few keys, short leases, late workers and wrong tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

from msgspec.structs import replace

from onceward.errors import StoreUnavailable
from onceward.protocol.ports import Filter, Store
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import (
    Answer,
    AnySettlement,
    ClaimRequest,
    ExpectedRecord,
    Renewal,
    Validity,
    Verdict,
)
from onceward.runtime.threads import nonce as new_nonce
from onceward.testing.conformance.histories import RandomRequests

T = TypeVar("T", ClaimRequest, Renewal, AnySettlement)
Pause = Callable[[int], Coroutine[Any, Any, None]]

TIMEOUT = 30.0
"""Seconds for one call: long, because this workload does not test speed."""

TIME_UNIT = 5_000
"""µs. Leases and windows are a few of these, so that they expire while other workers read them."""

SCOPE = "load"
NAMES = ("order 7", "order 8 ", "Ördnung\0", "ORDER 7", "order 7/2", "🦊")
"""Keys that a badly chosen column type would treat as equal, or truncate."""

INEXACT_AS_FLOAT = 2**53 + 1
"""A time that a floating point number cannot represent exactly."""

STEP_WEIGHTS = {
    "claim": 34,
    "renew": 10,
    "settle": 26,
    "repeat": 6,
    "resolve": 4,
    "read": 6,
    "lookup": 6,
    "scan": 1,
    "forget": 4,
    "purge": 1,
    "pause": 8,
}
"""How often each step is chosen. There are few pauses, so that requests arrive while the store is still busy."""

WRONG_OWNER_RATE = 0.15
"""How often a request has the token or nonce of another caller, or of a replaced owner."""

FORCE_RATE = 0.4
"""How often `force` is set, although the owner may be alive."""


def id_of(name: str) -> bytes:
    return hashlib.sha256(f"{SCOPE}\0{name}".encode()).digest()


def random_requests(unit: int) -> RandomRequests:
    """Return requests with leases and windows of a few units. A few leases never expire, and a few payloads differ."""
    windows = [Validity(lasting=number * unit) for number in (1, 2, 8)] * 2
    windows += [Validity(lasting=number * unit, slide=number * unit) for number in (1, 2, 8)]
    return RandomRequests(
        leases=[*[unit, 2 * unit, 4 * unit, 12 * unit] * 8, None],
        fingerprints=[*[b"\1one"] * 8, b"\1two", b"\2one", b""],
        max_attempts=[0, 0, 0, 2, 3],
        retry_delays=[0, unit],
        validities=[*windows, *[Validity(), Validity(until=INEXACT_AS_FLOAT)] * 3],
    )


class LoadWorker:
    """One caller with its own store; `step` sends one request. The same `rng` seed gives the same requests."""

    def __init__(
        self,
        store: Store,
        heartbeat: Store,
        rng: Random,
        pause: Pause,
        *,
        keys: int = 4,
        time_unit: int = TIME_UNIT,
        cancels: bool = False,
    ) -> None:
        self._cancels = cancels
        self._store = store
        self._heartbeat = heartbeat
        self._rng = rng
        self._pause = pause
        self._names = [NAMES[number] if number < len(NAMES) else f"order {number}" for number in range(keys)]
        self._time_unit = time_unit
        self._random = random_requests(time_unit)
        self._grants: dict[bytes, list[Record]] = {}
        self._seen: dict[bytes, Record] = {}
        self._sent: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._steps = {name: getattr(self, name) for name in STEP_WEIGHTS}

    async def step(self) -> None:
        [name] = self._rng.choices(list(STEP_WEIGHTS), list(STEP_WEIGHTS.values()))
        with suppress(StoreUnavailable):
            await self._steps[name]()

    # ── the steps ───────────────────────────────────────────────────────────────────────────────────────────────

    async def claim(self) -> None:
        requests = [
            replace(self._random.claim(self._rng), id=id_of(name), scope=SCOPE, key=name, nonce=new_nonce())
            for name in self._random_names()
        ]
        self._remember_to_repeat(lambda: self._claim(requests))
        await self._claim(requests)

    async def renew(self) -> None:
        await self._send(self._heartbeat.renew, [self._owner_request(id, "renew") for id in self._random_ids()])

    async def settle(self) -> None:
        kinds = self._rng.choices(["complete", "fail", "park", "release"], [5, 3, 1, 2], k=len(self._names))
        settlements = [self._owner_request(id, kind) for id, kind in zip(self._random_ids(), kinds, strict=False)]
        self._remember_to_repeat(lambda: self._send(self._store.settle, settlements))
        await self._send(self._store.settle, settlements)

    async def repeat(self) -> None:
        """Send an earlier request again."""
        if self._sent:
            await self._rng.choice(self._sent)()

    async def resolve(self) -> None:
        id = self._random_ids()[0]
        seen = self._seen.get(id)
        token, state = (1, RecordState.PARKED) if seen is None else (seen.token, seen.state)
        token += self._rng.random() < WRONG_OWNER_RATE
        force = self._rng.random() < FORCE_RATE
        request: Any = self._random.request(self._rng, "resolve")
        await self._send(self._store.settle, [replace(request, id=id, token_seen=token, state_seen=state, force=force)])

    async def read(self) -> None:
        ids = self._random_ids()
        self._remember_records(await self._store.read(ids, timeout=TIMEOUT))

    async def lookup(self) -> None:
        """Look up a key, unless that would block an event loop."""
        look = self._store.lookup
        if look is not None and (self._store.inline or not self._cancels):
            fingerprint = self._rng.choice([b"\1one", b"\1one", b"\1two", b""])
            look(self._random_ids()[0], fingerprint)

    async def scan(self) -> None:
        await self._store.scan(Filter(), cursor=None, limit=len(self._names), timeout=TIMEOUT)

    async def forget(self) -> None:
        ids, force = self._random_ids(), self._rng.random() < FORCE_RATE
        known = {id: ExpectedRecord(self._seen[id].token, self._seen[id].state) for id in ids if id in self._seen}
        seen = known if self._rng.random() < 0.5 else None
        self._remember_records(await self._store.forget(ids, force=force, timeout=TIMEOUT, seen=seen))

    async def purge(self) -> None:
        await self._store.purge(len(self._names), timeout=TIMEOUT)

    async def pause(self) -> None:
        await self._pause(self._rng.randrange(3 * self._time_unit))

    # ── sending ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _claim(self, requests: list[ClaimRequest]) -> None:
        for request, answer in zip(requests, await self._send(self._store.claim, requests), strict=False):
            if answer.verdict is Verdict.ACQUIRED and answer.record is not None:
                grants = self._grants.setdefault(request.id, [])
                grants[:] = [*grants[-3:], answer.record]

    async def _send(
        self, call: Callable[..., Coroutine[Any, Any, list[Answer]]], requests: Sequence[T]
    ) -> list[Answer]:
        """Send requests.

        Without an answer, mostly repeat them, as a caller must; otherwise simulate a crash and stop.
        """
        for _ in range(3):
            try:
                answers = await call(requests, timeout=TIMEOUT)
            except StoreUnavailable:
                if self._rng.random() < 0.3:
                    break
            else:
                self._remember_records(answers)
                return answers
        return []

    def _remember_records(self, answers: Sequence[Answer]) -> None:
        self._seen.update({answer.record.id: answer.record for answer in answers if answer.record is not None})

    def _remember_to_repeat(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._sent[:] = [*self._sent[-3:], call]

    def _random_names(self) -> list[str]:
        return self._rng.sample(self._names, min(len(self._names), self._rng.choice([1, 1, 1, 2, 3])))

    def _random_ids(self) -> list[bytes]:
        return [id_of(name) for name in self._random_names()]

    def _owner_request(self, id: bytes, kind: str) -> Any:
        token, nonce = self._owner(id)
        return replace(self._random.request(self._rng, kind), id=id, token=token, nonce=nonce)

    def _owner(self, id: bytes) -> tuple[int, bytes]:
        """Return a token and nonce: mostly those of the last grant."""
        grants = self._grants.get(id)
        seen = self._seen.get(id)
        if self._rng.random() >= WRONG_OWNER_RATE and grants:
            return grants[-1].token, grants[-1].nonce
        others = [(1, b"unused")]
        if grants:
            others.append((grants[0].token, grants[0].nonce))
        if seen is not None:
            others += [(seen.token, seen.nonce), (seen.token, b"another one's"), (seen.token - 1, seen.nonce)]
        return self._rng.choice(others)
