"""A load that visits most of the state table: few keys, short leases, and workers who are late or mistaken."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

from msgspec.structs import replace

from onceward.errors import StoreUnavailable
from onceward.protocol.capabilities import SupportsLookup
from onceward.protocol.ports import Filter, Store
from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import (
    Answer,
    AnySettlement,
    ClaimRequest,
    Complete,
    ExpectedRecord,
    Fail,
    Park,
    Release,
    Renewal,
    Resolution,
    Resolve,
    Validity,
    Verdict,
)
from onceward.runtime.nonce import nonce as new_nonce

T = TypeVar("T", ClaimRequest, Renewal, AnySettlement)
Pause = Callable[[int], Coroutine[Any, Any, None]]

TIMEOUT = 30.0
"""Seconds for one call: no worker is there to test slowness."""

MOMENT = 5_000
"""µs; leases and windows are a few of these, so that they lapse while others look."""

SCOPE = "load"
NAMES = ("order 7", "order 8 ", "Ördnung\0", "ORDER 7", "order 7/2", "🦊")
"""Keys that a careless column would take for one another, or cut."""

EXACT = 2**53 + 1
"""A time that floating point cannot hold."""

STEPS = {
    "claim": 34,
    "renew": 10,
    "settle": 26,
    "again": 6,
    "resolve": 4,
    "read": 6,
    "glance": 6,
    "scan": 1,
    "forget": 4,
    "purge": 1,
    "pause": 8,
}
"""How often each is chosen. Few pauses: a store is asked while it is still busy."""

MISTAKES = 0.15
"""How often a request is sent in the name of somebody else, or of an owner long replaced."""


FORCE = 0.4
"""How often somebody insists, though the owner lives."""


def id_of(name: str) -> bytes:
    return hashlib.sha256(f"{SCOPE}\0{name}".encode()).digest()


class Worker:
    """One caller with a store of its own; `step` asks for one thing. The same dice, the same wishes."""

    def __init__(
        self,
        store: Store,
        heartbeat: Store,
        dice: Random,
        pause: Pause,
        *,
        keys: int = 4,
        moment: int = MOMENT,
        cancels: bool = False,
    ) -> None:
        self._cancels = cancels
        self._store = store
        self._heartbeat = heartbeat
        self._dice = dice
        self._pause = pause
        self._names = [NAMES[number] if number < len(NAMES) else f"order {number}" for number in range(keys)]
        self._moment = moment
        self._grants: dict[bytes, list[Record]] = {}
        self._seen: dict[bytes, Record] = {}
        self._sent: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._steps = {name: getattr(self, name) for name in STEPS}

    async def step(self) -> None:
        [name] = self._dice.choices(list(STEPS), list(STEPS.values()))
        with suppress(StoreUnavailable):
            await self._steps[name]()

    # ── what a worker does ──────────────────────────────────────────────────────────────────────────────────────

    async def claim(self) -> None:
        requests = [self._wanting(name) for name in self._some_names()]
        self._remember_to_repeat(lambda: self._claim(requests))
        await self._claim(requests)

    async def renew(self) -> None:
        leases = [self._dice.choice([1, 2, 4]) * self._moment for _ in range(2)]
        ids = self._some_ids()
        renewals = [Renewal(id, *self._owner(id), lease=leases[0], note=self._note()) for id in ids]
        await self._send(self._heartbeat.renew, renewals)

    async def settle(self) -> None:
        settlements = [self._settlement(id) for id in self._some_ids()]
        self._remember_to_repeat(lambda: self._send(self._store.settle, settlements))
        await self._send(self._store.settle, settlements)

    async def again(self) -> None:
        """What was asked before arrives once more."""
        if self._sent:
            await self._dice.choice(self._sent)()

    async def resolve(self) -> None:
        id = self._some_ids()[0]
        seen = self._seen.get(id)
        token, state = (1, RecordState.PARKED) if seen is None else (seen.token, seen.state)
        resolution = self._dice.choice(list(Resolution))
        request = Resolve(id, token + (self._dice.random() < MISTAKES), resolution, **self._value())
        force = self._dice.random() < FORCE
        await self._send(self._store.settle, [replace(request, state_seen=state, force=force)])

    async def read(self) -> None:
        ids = self._some_ids()
        self._notice(await self._store.read(ids, timeout=TIMEOUT))

    async def lookup(self) -> None:
        """Only where it may block: a loop must not be held up."""
        if isinstance(self._store, SupportsLookup) and (self._store.inline or not self._cancels):
            fingerprint = self._dice.choice([b"\1one", b"\1one", b"\1two", b""])
            self._store.lookup(self._some_ids()[0], fingerprint)

    async def scan(self) -> None:
        await self._store.scan(Filter(), cursor=None, limit=len(self._names), timeout=TIMEOUT)

    async def forget(self) -> None:
        ids, force = self._some_ids(), self._dice.random() < FORCE
        known = {id: ExpectedRecord(self._seen[id].token, self._seen[id].state) for id in ids if id in self._seen}
        seen = known if self._dice.random() < 0.5 else None
        self._notice(await self._store.forget(ids, force=force, timeout=TIMEOUT, seen=seen))

    async def purge(self) -> None:
        await self._store.purge(len(self._names), timeout=TIMEOUT)

    async def pause(self) -> None:
        await self._pause(self._dice.randrange(3 * self._moment))

    # ── how it asks ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _claim(self, requests: list[ClaimRequest]) -> None:
        for request, answer in zip(requests, await self._send(self._store.claim, requests), strict=False):
            if answer.verdict is Verdict.ACQUIRED and answer.record is not None:
                grants = self._grants.setdefault(request.id, [])
                grants[:] = [*grants[-3:], answer.record]

    async def _send(
        self, call: Callable[..., Coroutine[Any, Any, list[Answer]]], requests: Sequence[T]
    ) -> list[Answer]:
        """Without an answer mostly the same again, as a caller has to; else the worker has crashed, so to speak."""
        for _ in range(3):
            try:
                answers = await call(requests, timeout=TIMEOUT)
            except StoreUnavailable:
                if self._dice.random() < 0.3:
                    break
            else:
                self._notice(answers)
                return answers
        return []

    def _notice(self, answers: Sequence[Answer]) -> None:
        self._seen.update({answer.record.id: answer.record for answer in answers if answer.record is not None})

    def _remember_to_repeat(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._sent[:] = [*self._sent[-3:], call]

    def _some_names(self) -> list[str]:
        return self._dice.sample(self._names, min(len(self._names), self._dice.choice([1, 1, 1, 2, 3])))

    def _some_ids(self) -> list[bytes]:
        return [id_of(name) for name in self._some_names()]

    # ── what it asks for ────────────────────────────────────────────────────────────────────────────────────────

    def _wanting(self, name: str) -> ClaimRequest:
        dice = self._dice
        return ClaimRequest(
            id=id_of(name),
            scope=SCOPE,
            key=name,
            nonce=new_nonce(),
            lease=None if dice.random() < 0.03 else dice.choice([1, 2, 4, 12]) * self._moment,
            fingerprint=dice.choice([*[b"\1one"] * 8, b"\1two", b"\2one", b""]),
            arguments=dice.choice([{}, {"x": "1a"}]),
            after_crash=dice.choice([*[AfterCrash.RERUN] * 4, *AfterCrash]),
            max_attempts=dice.choice([0, 0, 0, 2, 3]),
            owner=dice.choice(["", "worker é"]),
            note=self._note(),
        )

    def _owner(self, id: bytes) -> tuple[int, bytes]:
        """Token and nonce: mostly of the last grant."""
        grants = self._grants.get(id)
        seen = self._seen.get(id)
        if self._dice.random() >= MISTAKES and grants:
            return grants[-1].token, grants[-1].nonce
        others = [(1, b"nobody's")]
        if grants:
            others.append((grants[0].token, grants[0].nonce))
        if seen is not None:
            others += [(seen.token, seen.nonce), (seen.token, b"another one's"), (seen.token - 1, seen.nonce)]
        return self._dice.choice(others)

    def _settlement(self, id: bytes) -> AnySettlement:
        dice = self._dice
        token, nonce = self._owner(id)
        error: dict[str, Any] = {
            "error_type": "ValueError",
            "error": dice.choice(["", "no é\0, no"]),
            "note": self._note(),
        }
        kind = dice.choices(["complete", "fail", "park", "release"], [5, 3, 1, 2])[0]
        if kind == "complete":
            return Complete(id, token, nonce, **self._value())
        if kind == "park":
            return Park(id, token, nonce, **error)
        if kind == "release":
            return Release(id, token, nonce)
        return Fail(
            id,
            token,
            nonce,
            final=dice.random() < 0.3,
            known=dice.random() < 0.5,
            retry_in=dice.choice([0, self._moment]),
            max_attempts=dice.choice([0, 0, 2]),
            validity=self._validity(),
            **error,
        )

    def _value(self) -> dict[str, Any]:
        number = self._dice.randrange(4)
        return {
            "result": (b"done", b"", None, None)[number],
            "digest": b"digest %d" % number,
            "stored": number < 3,
            "validity": self._validity(),
            "note": self._note(),
        }

    def _validity(self) -> Validity:
        some = self._dice.choice([1, 2, 8]) * self._moment
        kinds = [Validity(lasting=some), Validity(lasting=some), Validity(lasting=some, slide=some), Validity()]
        return self._dice.choice([*kinds, Validity(until=EXACT)])

    def _note(self) -> dict[str, str]:
        return self._dice.choice([{}, {}, {"page": str(self._dice.randrange(9))}])
