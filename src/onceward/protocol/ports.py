"""What the engine needs from a store and a clock. `capabilities` lists what a store may offer beyond this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from .audit import AuditEntry, AuditFilter, AuditSignature
from .record import Record, RecordState
from .requests import Answer, AnySettlement, ClaimRequest, ExpectedRecord, Renewal
from .runtime import Answers, Runtime


class Clock(Protocol):
    """The store's clock, in µs since 1970. Stores with a clock of their own do not use it."""

    def now(self) -> int: ...


class Filter(Struct, frozen=True):
    """Which records a scan wants. Empty means all."""

    states: tuple[RecordState, ...] = ()
    scope: str | None = None
    key: str | None = None
    updated_before: int | None = None


class SortOrder(StrEnum):
    """Which records come first: those touched or made last, or by their readable keys."""

    UPDATED = "updated"
    CREATED = "created"
    KEY = "key"


SORT_KEYS: dict[SortOrder, Callable[[Record], tuple[Any, bytes]]] = {
    SortOrder.UPDATED: lambda record: (-record.updated_at, record.id),
    SortOrder.CREATED: lambda record: (-record.created_at, record.id),
    SortOrder.KEY: lambda record: (record.key, record.id),
}
"""Where a record stands in each order."""


class Page(Struct, frozen=True):
    """One page of a scan; `cursor` None means that it was the last. `now` is the store's time.

    `unreadable`: the keys of those that no Onceward has written so. One of them does not hide the others.
    """

    records: list[Record]
    cursor: bytes | None
    now: int
    unreadable: tuple[str, ...] = ()


class Store(Protocol):
    """Holds records. Batch-first; atomic per key, not across the batch; at most one request a key a batch.

    Each method applies the function of the same name in `protocol.transitions` to each record. `timeout` bounds the
    call in seconds; a store that cannot answer in time raises StoreUnavailable, which means *unknown*, not *no*.

    What is `signed` is a change by hand: it enters the audit trail in the same step as the change. A store that has no
    such step writes the entry first: never a change without its entry. What changes nothing leaves no entry.
    """

    name: str
    """Where it is, for people: never with a password."""

    inline: bool
    """True if calls never wait for anything but a short lock (memory)."""

    async def open(self, runtime: Runtime) -> None:
        """Connect. May be called again, also by two callers at once; the last world holds."""

    async def close(self) -> None: ...
    def clone(self) -> Store:
        """Another store on the same data with a connection of its own, not yet open (the keeper's)."""
        ...

    def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> Answers: ...
    def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> Answers: ...
    def settle(
        self, settlements: Sequence[AnySettlement], *, timeout: float, signed: AuditSignature | None = None
    ) -> Answers: ...
    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        """Verdict OK with the record, or ABSENT."""
        ...

    async def forget(
        self,
        ids: Sequence[bytes],
        *,
        force: bool,
        timeout: float,
        seen: Mapping[bytes, ExpectedRecord] | None = None,
        signed: AuditSignature | None = None,
    ) -> list[Answer]:
        """Those of which it is known what was `seen` are spared if they have become another record since."""
        ...

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page: ...
    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]: ...
    async def purge(self, limit: int, *, timeout: float, signed: AuditSignature | None = None) -> int:
        """Delete up to `limit` records that answer for nothing any more; tells how many went.

        Also audit entries older than KEEP_AUDIT, which are not counted.
        """
        ...

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        """What was changed by hand: the newest first, at most `limit`."""
        ...
