"""A store behind a network that fails on request: requests are lost, replies are lost, calls hang."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from onceward.errors import StoreUnavailable
from onceward.protocol.audit import AuditEntry, AuditFilter
from onceward.protocol.capabilities import Capabilities, Notifications, Transactions
from onceward.protocol.ports import Filter, Page, Store
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, AnySettlement, ClaimRequest, Renewal
from onceward.protocol.runtime import Runtime
from tests.clients import Backend

Verb = Literal["claim", "renew", "settle", "read"]
DOWN = 1_000_000
"""More calls than any test makes: the store is down until `heal`."""


class FaultyNetwork:
    """The planned failures between client and store, and the calls seen there. Shared by a store and its clones."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.nonces: dict[str, list[bytes]] = {"claim": [], "renew": [], "settle": []}
        self.sizes: list[int] = []
        self.timeouts: dict[str, list[float]] = {}
        self._plans: dict[str, deque[str]] = {}
        self._lock = threading.Lock()

    def lose_requests(self, verb: Verb, times: int = DOWN) -> None:
        """The next calls never reach the store."""
        self._plan(verb, "request", times)

    def lose_replies(self, verb: Verb, times: int = 1) -> None:
        """The store executes the next calls, but its replies are lost."""
        self._plan(verb, "reply", times)

    def heal(self) -> None:
        with self._lock:
            self._plans.clear()

    def _plan(self, verb: Verb, what: str, times: int) -> None:
        with self._lock:
            self._plans[verb] = deque([what], maxlen=1) if times == DOWN else deque([what] * times)

    def next(self, verb: str) -> str:
        with self._lock:
            self.calls[verb] += 1
            plan = self._plans.get(verb)
            if not plan:
                return ""
            return plan[0] if plan.maxlen == 1 else plan.popleft()


class FaultyStore(Capabilities):
    """Another store, reached through the faulty network. It has no lookup, because every call takes the network."""

    def __init__(self, store: Store, network: FaultyNetwork) -> None:
        self.inner: Any = store
        self.network = network
        self.name = store.name
        self.inline = store.inline

    def clone(self) -> Store:
        clone = self.inner.clone()
        return self if clone is self.inner else FaultyStore(clone, self.network)

    async def open(self, runtime: Runtime) -> None:
        await self.inner.open(runtime)

    async def close(self) -> None:
        await self.inner.close()

    async def _through(self, verb: Verb, call: Callable[..., Any], requests: Sequence[Any], timeout: float) -> Any:
        fault = self.network.next(verb)
        self.network.timeouts.setdefault(verb, []).append(timeout)
        if fault == "request":
            raise StoreUnavailable(f"{verb}: connection refused")
        answers = await call(requests, timeout=timeout)
        if fault == "reply":
            raise StoreUnavailable(f"{verb}: connection reset")
        return answers

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        self.network.nonces["claim"] += [one.nonce for one in requests]
        answers: list[Answer] = await self._through("claim", self.inner.claim, requests, timeout)
        return answers

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        self.network.nonces["renew"] += [one.nonce for one in renewals]
        self.network.sizes.append(len(renewals))
        answers: list[Answer] = await self._through("renew", self.inner.renew, renewals, timeout)
        return answers

    async def settle(self, settlements: Sequence[AnySettlement], *, timeout: float, **how: Any) -> list[Answer]:
        self.network.nonces["settle"] += [getattr(one, "nonce", b"") for one in settlements]
        answers: list[Answer] = await self._through("settle", partial(self.inner.settle, **how), settlements, timeout)
        return answers

    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        answers: list[Answer] = await self._through("read", self.inner.read, ids, timeout)
        return answers

    async def forget(self, ids: Sequence[bytes], **how: Any) -> list[Answer]:
        answers: list[Answer] = await self.inner.forget(ids, **how)
        return answers

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        page: Page = await self.inner.scan(wanted, cursor=cursor, limit=limit, timeout=timeout)
        return page

    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]:
        counts: dict[tuple[str, RecordState], int] = await self.inner.counts(timeout=timeout)
        return counts

    async def purge(self, limit: int, **how: Any) -> int:
        purged: int = await self.inner.purge(limit, **how)
        return purged

    async def audit(self, wanted: AuditFilter, **how: Any) -> list[AuditEntry]:
        entries: list[AuditEntry] = await self.inner.audit(wanted, **how)
        return entries

    @property
    def notifications(self) -> Notifications | None:
        found: Notifications | None = self.inner.notifications
        return found

    @property
    def transactions(self) -> Transactions | None:
        found: Transactions | None = self.inner.transactions
        return found


class FaultyBackend(Backend):
    """A backend that is reached through the faulty network."""

    def __init__(self, backend: Backend, network: FaultyNetwork) -> None:
        self.__dict__.update(backend.__dict__)
        self.network = network

    def open(self) -> Store:
        return FaultyStore(super().open(), self.network)

    def open_without_faults(self) -> Store:
        """Open the store as a client with a working network sees it."""
        return super().open()
