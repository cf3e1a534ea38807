"""What the engine needs from a store and a clock. `capabilities` lists what a store may offer in addition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from .audit import AuditEntry, AuditFilter, AuditSignature
from .record import Record, RecordState
from .requests import Answer, AnySettlement, ClaimRequest, ExpectedRecord, Renewal
from .runtime import Answers, Runtime

if TYPE_CHECKING:
    from .capabilities import (
        Commits,
        Counters,
        Erasure,
        Health,
        LatestStates,
        Lookup,
        Migrations,
        Notifications,
        Sorting,
        Transactions,
    )
    from .listing import Listing


class Clock(Protocol):
    """The store's clock, in µs since 1970. Stores on a server use the server's clock instead."""

    def now(self) -> int: ...


class Filter(Struct, frozen=True):
    """Which records a scan returns. Empty means all."""

    states: tuple[RecordState, ...] = ()
    scope: str | None = None
    key: str | None = None
    updated_before: int | None = None
    prefix: str | None = None
    """The start of the displayed key."""


class SortOrder(StrEnum):
    """Sort order of records: last updated first, last created first, or by readable key."""

    UPDATED = "updated"
    CREATED = "created"
    KEY = "key"


SORT_KEYS: dict[SortOrder, Callable[[Record], tuple[Any, bytes]]] = {
    SortOrder.UPDATED: lambda record: (-record.updated_at, record.id),
    SortOrder.CREATED: lambda record: (-record.created_at, record.id),
    SortOrder.KEY: lambda record: (record.key, record.id),
}
"""The sort key of a record in each order."""


class Page(Struct, frozen=True):
    """One page of a scan; `cursor` None means that it was the last. `now` is the store's time.

    `unreadable`: the keys of records with invalid content, so that one of them does not hide the others.
    """

    records: list[Record]
    cursor: bytes | None
    now: int
    unreadable: tuple[str, ...] = ()


class Store(Protocol):
    """Holds records. Calls take batches: atomic per key, not across the batch, with at most one request per key.

    `claim`, `renew`, `settle` and `forget` apply the functions of these names in `protocol.transitions` to each record.
    `timeout` bounds the call in seconds. A store that cannot answer in time raises StoreUnavailable, which means
    *unknown*, not *no*.

    A call with `signed` is a manual change: its audit entry is written atomically with the change. A store that cannot
    do so writes the entry first: a change never lacks its entry. A call that changes nothing adds no entry.
    """

    name: str
    """The store's location, for display. It never contains a password."""

    inline: bool
    """Whether calls never wait for anything but a short lock (memory)."""

    # What the store offers in addition. A store that offers nothing inherits from `Capabilities`.
    @property
    def lookup(self) -> Lookup | None: ...
    @property
    def notifications(self) -> Notifications | None: ...
    @property
    def sorting(self) -> Sorting | None: ...
    @property
    def listing(self) -> Listing | None: ...
    @property
    def migrations(self) -> Migrations | None: ...
    @property
    def transactions(self) -> Transactions | None: ...
    @property
    def commits(self) -> Commits | None: ...
    @property
    def latest(self) -> LatestStates | None: ...
    @property
    def counters(self) -> Counters | None: ...
    @property
    def health(self) -> Health | None: ...
    @property
    def erasure(self) -> Erasure | None: ...
    @property
    def max_result_bytes(self) -> int | None: ...
    @property
    def batch_splits(self) -> int: ...

    async def open(self, runtime: Runtime) -> None:
        """Connect. May be called again, also concurrently; the runtime of the last call is used."""

    async def close(self) -> None: ...
    def clone(self) -> Store:
        """Return another store for the same data with its own connection, not yet open, for the heartbeat."""
        ...

    def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> Answers: ...
    def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> Answers: ...
    def settle(
        self, settlements: Sequence[AnySettlement], *, timeout: float, signed: AuditSignature | None = None
    ) -> Answers: ...
    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        """Return verdict OK with the record, or ABSENT."""
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
        """Reset records to FREE. A record in `seen` is left alone if it has changed since then."""
        ...

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page: ...
    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]: ...
    async def purge(self, limit: int, *, timeout: float, signed: AuditSignature | None = None) -> int:
        """Delete up to `limit` records that are no longer needed. Return how many were deleted.

        It also deletes audit entries older than AUDIT_RETENTION, which are not counted.
        """
        ...

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        """Return at most `limit` manual changes, latest first."""
        ...
