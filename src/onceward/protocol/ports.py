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
        History,
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

    def now(self) -> int:
        """Return the time in µs since 1970."""
        ...


class Filter(Struct, frozen=True):
    """Which records a scan returns. Empty means all.

    `states` and `scope` are exact, `key` is the whole readable key. `updated_before` is in µs since 1970.
    """

    states: tuple[RecordState, ...] = ()
    scope: str | None = None
    key: str | None = None
    updated_before: int | None = None
    prefix: str | None = None
    """The start of the displayed key."""


class SortOrder(StrEnum):
    """How a listing sorts records."""

    UPDATED = "updated"
    """Last updated first."""
    CREATED = "created"
    """Last created first."""
    KEY = "key"
    """By readable key, ascending."""


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
    """The records of this page, in the order of the scan."""
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
    def lookup(self) -> Lookup | None:
        """Looks up completed records without a claim, or None."""
        ...

    @property
    def notifications(self) -> Notifications | None:
        """Wakes callers that wait for a key, or None."""
        ...

    @property
    def sorting(self) -> Sorting | None:
        """Returns the first records in an order, or None."""
        ...

    @property
    def listing(self) -> Listing | None:
        """Lists records for operators, or None."""
        ...

    @property
    def migrations(self) -> Migrations | None:
        """Creates and migrates tables, or None."""
        ...

    @property
    def transactions(self) -> Transactions | None:
        """Joins the caller's transaction, or None."""
        ...

    @property
    def commits(self) -> Commits | None:
        """Reports how a transaction ended, or None."""
        ...

    @property
    def latest(self) -> LatestStates | None:
        """Keeps the latest state of entities, or None."""
        ...

    @property
    def counters(self) -> Counters | None:
        """Keeps counters by hour, or None."""
        ...

    @property
    def history(self) -> History | None:
        """Keeps the latest events of each key, or None."""
        ...

    @property
    def health(self) -> Health | None:
        """Checks how safe the data is, or None."""
        ...

    @property
    def erasure(self) -> Erasure | None:
        """Deletes everything that names a key, or None."""
        ...

    @property
    def max_result_bytes(self) -> int | None:
        """Maximum size of an encoded result; None if there is none. A larger result is not stored."""
        ...

    @property
    def batch_splits(self) -> int:
        """Number of calls per large batch on an event loop; 1 if batches are not split."""
        ...

    async def open(self, runtime: Runtime) -> None:
        """Connect. May be called again, also concurrently; the `runtime` of the last call is used.

        Raise `StoreNotSetUp` if tables are missing, and `StoreUnavailable` if the store does not answer.
        """

    async def close(self) -> None:
        """Disconnect. The store may be opened again. A second call does nothing."""
        ...

    def clone(self) -> Store:
        """Return another store for the same data with its own connection, not yet open, for the heartbeat."""
        ...

    def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> Answers:
        """Try to acquire the keys of these `requests`. Return one answer per request, in order.

        A repeated request with the same nonce returns the same answer, and does not start a second attempt.
        """
        ...

    def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> Answers:
        """Extend the leases of `renewals`. Return one answer each; one whose owner was replaced is LOST."""
        ...

    def settle(
        self, settlements: Sequence[AnySettlement], *, timeout: float, signed: AuditSignature | None = None
    ) -> Answers:
        """Record how attempts ended. Return one answer per item of `settlements`, in order.

        A repeated settlement with the same content succeeds and changes nothing.
        """
        ...

    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        """Return an answer for each of these `ids`: verdict OK with the record, or ABSENT."""
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
        """Reset the records with these `ids` to FREE. Return one answer each, in order.

        A record whose owner still holds its lease is left alone, unless `force` is set. A record in `seen` is left
        alone if it has changed since then.
        """
        ...

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        """Return a page of up to `limit` of the `wanted` records, in the store's own order.

        `cursor` is that of the previous page; None starts. A record that exists during the whole scan is returned once.
        """
        ...

    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]:
        """Return the number of records by scope and state."""
        ...

    async def purge(self, limit: int, *, timeout: float, signed: AuditSignature | None = None) -> int:
        """Delete up to `limit` records that are no longer needed. Return how many were deleted.

        It also deletes audit entries older than AUDIT_RETENTION, which are not counted.
        """
        ...

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        """Return at most `limit` of the `wanted` manual changes, latest first."""
        ...
