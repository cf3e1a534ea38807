"""What a store may offer beyond the port. Each capability is an attribute of the store: an object, or None.

The object is often the store itself. `Capabilities` has the defaults for stores, `BuiltInCapabilities` adds what all
built-in stores offer. `DelegatedCapabilities` is the base of wrappers, so that a wrapper neither hides a capability of
its store nor claims one that its store lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from .joined_store import AppliesEvents, Commits, JoinedStore, Transactions
from .ports import Filter, Page, SortOrder, Store
from .record import CompletedRecord, Record
from .runtime import Runtime

if TYPE_CHECKING:
    from .audit import AuditSignature
    from .counters import CounterRow, StoredCounts
    from .erasure import ErasureFilter, FoundEntity
    from .history import HistoryEvent
    from .latest import DedupMark, EntityState
    from .listing import Listing

__all__ = [
    "CAPABILITIES",
    "AppliesEvents",
    "BuiltInCapabilities",
    "Capabilities",
    "Commits",
    "Counters",
    "DelegatedCapabilities",
    "Erasure",
    "Health",
    "HealthFinding",
    "History",
    "JoinedStore",
    "LatestStates",
    "Lookup",
    "Migrations",
    "Notifications",
    "Schema",
    "Sorting",
    "Transactions",
]


class Lookup(Protocol):
    """Looks up a completed record without a claim. It neither writes nor waits for a write, but it may block."""

    def __call__(self, id: bytes, fingerprint: bytes, /) -> CompletedRecord | None:
        """Return the completed record with this `id`, if a claim with this `fingerprint` would replay it.

        None means that the caller must claim. `transitions.replays` is the rule.
        """
        ...


class Notifications(Protocol):
    """Notifies callers that wait for a key."""

    def watch(self, id: bytes, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` (from any thread) when the record `id` changes. Return a function that stops watching."""
        ...


class Sorting(Protocol):
    """Returns the first records in a sort order, without a full scan by the caller. May be slow."""

    async def first(self, wanted: Filter, *, order: SortOrder, limit: int, timeout: float) -> Page:
        """Return the first page of the `wanted` records in this `order`, without a cursor.

        `limit` is the maximum number of records, and `timeout` bounds the call in seconds.
        """
        ...


class Schema(Struct, frozen=True):
    """The version of a store's tables, the version that this code writes, and the statements that migrate to it."""

    version: int
    """The version of the existing tables. 0 if there are none."""
    latest: int
    """The version that this code creates."""
    min_reader: int
    """The lowest `latest` with which code may use these tables. If yours is lower, upgrade this process."""
    statements: tuple[str, ...]
    """Execute them in one transaction. Empty if the schema is up to date."""


class Migrations(Protocol):
    """A versioned schema. Both methods work before `open`. `runtime` is that of the client."""

    async def schema(self, runtime: Runtime, *, timeout: float) -> Schema:
        """Return the version of the tables. Create no file and change nothing. `timeout` is in seconds."""
        ...

    async def migrate(self, runtime: Runtime) -> None:
        """Migrate to the latest version. Do nothing if the schema is up to date."""
        ...


class LatestStates(AppliesEvents, Protocol):
    """Keeps the latest state of entities, and lists them for operators. `timeout` is in seconds."""

    async def expire_latest(self, limit: int, *, timeout: float) -> int:
        """Delete up to `limit` expired marks and expired deleted entities. Return how many were deleted."""
        ...

    async def entities(
        self, scope: str, *, cursor: bytes | None, limit: int, timeout: float
    ) -> tuple[list[EntityState], bytes | None]:
        """Return up to `limit` entities of the `scope` that have a value, and the cursor of the next page, or None.

        `cursor` is that of the previous page; None starts. The order is the store's own, and a page may be short. The
        call may read every entity of the store.
        """
        ...

    async def marks(self, ids: Sequence[bytes], *, timeout: float) -> list[DedupMark | None]:
        """Return each of the marks `ids`; None if it does not exist or has expired."""
        ...


class Counters(Protocol):
    """Keeps the counters of all processes, by hour, for COUNTS_RETENTION. `timeout` is in seconds."""

    async def save_counts(self, counter_rows: Sequence[CounterRow], *, timeout: float) -> int:
        """Write `counter_rows`, each replacing an earlier row of its process and hour. Return the store's time.

        One call writes all rows, however many scopes they have. A row with a lower number than the stored one changes
        nothing: a later write was faster. Without rows, the call only returns the time. It also deletes old rows.
        """
        ...

    async def read_counts(self, since: int, *, timeout: float) -> StoredCounts:
        """Return the rows of the hour `since` (counted from 1970) and of later ones, of all processes.

        Rows older than COUNTS_RETENTION are left out.
        """
        ...

    async def expire_counts(self, limit: int, *, timeout: float) -> int:
        """Delete up to `limit` rows that are older than COUNTS_RETENTION. Return how many were deleted."""
        ...


class History(Protocol):
    """Keeps the latest events of each key until its record is deleted or forgotten. `timeout` is in seconds."""

    async def append_history(self, events: Sequence[HistoryEvent], *, timeout: float) -> int:
        """Write `events`, and drop the oldest of each record beyond `history.MAX_EVENTS`. Return the store's time.

        An event that no longer belongs to its record (`history.belongs_to`) is left out. Without events, the call only
        returns the time.
        """
        ...

    async def read_history(self, id: bytes, *, limit: int, timeout: float) -> list[HistoryEvent]:
        """Return the latest events of the record `id`, at most `limit`, oldest first."""
        ...


class HealthFinding(Struct, frozen=True):
    """One result of a store's self-check, for operators: whether it is as it should be, and the facts.

    `unsafe`: the store may lose data, so opening it for work is refused; `detail` says what to do.
    """

    name: str
    """What was checked, such as `persistence`."""
    ok: bool
    """Whether it is as it should be."""
    detail: str
    unsafe: bool = False


class Health(Protocol):
    """Checks how safe the data is."""

    async def examine(self, *, timeout: float) -> list[HealthFinding]:
        """Return one finding per check, including those that are as they should be. `timeout` is in seconds."""
        ...

    async def open_for_inspection(self, runtime: Runtime) -> None:
        """Open the store with this `runtime` even if it is unsafe: `examine` reports what is unsafe."""
        ...


class Erasure(Protocol):
    """Permanently deletes everything that names a key. Each call may use several transactions, and can be repeated.

    `timeout` bounds a call in seconds.
    """

    async def delete_free(self, records: Sequence[Record], *, timeout: float) -> int:
        """Delete the `records` that are FREE now, regardless of the age of their tokens. Return how many were deleted.

        A later claim of the key gets a larger token, because tokens follow the store's clock.
        """
        ...

    async def find_entities(self, wanted: ErasureFilter, *, timeout: float) -> list[FoundEntity]:
        """Return the `wanted` entities with a latest state, including deleted ones whose order is still stored.

        Invalid content must not hide other entities: return an entity whose scope is unknown with `readable=False`.
        """
        ...

    async def delete_entities(self, found: Sequence[FoundEntity], *, timeout: float) -> int:
        """Delete the states of the `found` entities. Return how many were deleted."""
        ...

    async def redact_audit(self, wanted: ErasureFilter, *, timeout: float, dry_run: bool = False) -> int:
        """Remove id, scope, key and reason from the audit entries of `wanted` keys. Return how many were changed.

        The command, the time and the person are kept. Entries with invalid content may be replaced entirely. With
        `dry_run`, only count the entries.
        """
        ...

    async def add_audit(self, signed: AuditSignature, count: int, *, timeout: float) -> None:
        """Add an audit entry without a key, by the author `signed`, with the `count` of erased records."""
        ...

    async def discard_deleted(self, *, timeout: float) -> str:
        """Remove deleted content from the store's files, if the store can do that.

        Return which content remains for now and what to do about it, or "".
        """
        ...


CAPABILITIES: Final = (
    "lookup",
    "notifications",
    "sorting",
    "listing",
    "migrations",
    "transactions",
    "commits",
    "latest",
    "counters",
    "history",
    "health",
    "erasure",
    "max_result_bytes",
    "batch_splits",
)
"""The names of all capabilities."""


class Capabilities:
    """The capabilities of a store that offers none. A store overrides those that it offers."""

    @property
    def lookup(self) -> Lookup | None:
        """Looks up completed records without a claim. None: every replay needs a claim."""
        return None

    @property
    def notifications(self) -> Notifications | None:
        """Wakes callers that wait for a key. None: they poll."""
        return None

    @property
    def sorting(self) -> Sorting | None:
        """Returns the first records in an order. None: callers scan all records."""
        return None

    @property
    def listing(self) -> Listing | None:
        """Lists records for operators. None: callers scan all records."""
        return None

    @property
    def migrations(self) -> Migrations | None:
        """Creates and migrates tables. None: the store has no schema."""
        return None

    @property
    def transactions(self) -> Transactions | None:
        """Joins the caller's transaction. None: it cannot."""
        return None

    @property
    def commits(self) -> Commits | None:
        """Reports how a transaction ended. None: it cannot."""
        return None

    @property
    def latest(self) -> LatestStates | None:
        """Keeps the latest state of entities. None: `once.state` raises."""
        return None

    @property
    def counters(self) -> Counters | None:
        """Keeps counters by hour. None: `once.stats` raises."""
        return None

    @property
    def history(self) -> History | None:
        """Keeps the latest events of each key. None: operators see the current attempt only."""
        return None

    @property
    def health(self) -> Health | None:
        """Checks how safe the data is. None: there is nothing to check."""
        return None

    @property
    def erasure(self) -> Erasure | None:
        """Deletes everything that names a key. None: `once.erase` raises."""
        return None

    @property
    def max_result_bytes(self) -> int | None:
        """Maximum size of an encoded result, if there is one. A larger result is not stored."""
        return None

    @property
    def batch_splits(self) -> int:
        """Number of calls per large batch on an event loop. The store processes one while the next is prepared."""
        return 1


class BuiltInCapabilities(Capabilities):
    """The capabilities that all built-in stores offer: the store object itself implements them."""

    @property
    def notifications(self: Notifications) -> Notifications:
        return self

    @property
    def sorting(self: Sorting) -> Sorting:
        return self

    @property
    def latest(self: LatestStates) -> LatestStates:
        return self

    @property
    def counters(self: Counters) -> Counters:
        return self


class DelegatedCapabilities(Capabilities):
    """The capabilities of a wrapper: those of its store."""

    _store: Store

    @property
    def lookup(self) -> Lookup | None:
        return self._store.lookup

    @property
    def notifications(self) -> Notifications | None:
        return self._store.notifications

    @property
    def sorting(self) -> Sorting | None:
        return self._store.sorting

    @property
    def listing(self) -> Listing | None:
        return self._store.listing

    @property
    def migrations(self) -> Migrations | None:
        return self._store.migrations

    @property
    def transactions(self) -> Transactions | None:
        return self._store.transactions

    @property
    def commits(self) -> Commits | None:
        return self._store.commits

    @property
    def latest(self) -> LatestStates | None:
        return self._store.latest

    @property
    def counters(self) -> Counters | None:
        return self._store.counters

    @property
    def history(self) -> History | None:
        return self._store.history

    @property
    def health(self) -> Health | None:
        return self._store.health

    @property
    def erasure(self) -> Erasure | None:
        return self._store.erasure

    @property
    def max_result_bytes(self) -> int | None:
        return self._store.max_result_bytes

    @property
    def batch_splits(self) -> int:
        return self._store.batch_splits
