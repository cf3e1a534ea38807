"""What a store may offer beyond the port. Each capability is an attribute of the store: an object, or None.

The object is often the store itself. `Capabilities` has the defaults for stores, `BuiltInCapabilities` adds what all
built-in stores offer. `DelegatedCapabilities` is the base of wrappers, so that a wrapper neither hides a capability of
its store nor claims one that its store lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from .ports import Filter, Page, SortOrder, Store
from .record import CompletedRecord, Record
from .requests import Answer, AnySettlement, ClaimRequest, Renewal
from .runtime import Runtime

if TYPE_CHECKING:
    from .audit import AuditSignature
    from .counters import CounterRow, StoredCounts
    from .erasure import ErasureFilter, FoundEntity
    from .latest import DedupMark, EntityState, EventDelivery, LatestResult, Retention
    from .listing import Listing


class Lookup(Protocol):
    """Looks up a completed record without a claim. It neither writes nor waits for a write, but it may block."""

    def __call__(self, id: bytes, fingerprint: bytes, /) -> CompletedRecord | None:
        """Return the record if `transitions.replays` is true for it. None: the caller must claim."""
        ...


class Notifications(Protocol):
    """Notifies callers that wait for a key."""

    def watch(self, id: bytes, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` (from any thread) when the record changes. Return a function that stops watching."""
        ...


class Sorting(Protocol):
    """Returns the first records in a sort order, without a full scan by the caller. May be slow."""

    async def first(self, wanted: Filter, *, order: SortOrder, limit: int, timeout: float) -> Page:
        """Return the first page in that order, and no cursor."""
        ...


class Schema(Struct, frozen=True):
    """The version of a store's tables, the version that this code writes, and the statements that migrate to it."""

    version: int
    latest: int
    min_reader: int
    statements: tuple[str, ...]
    """Execute them in one transaction. Empty if the schema is up to date."""


class Migrations(Protocol):
    """A versioned schema. Both methods work before `open`."""

    async def schema(self, runtime: Runtime, *, timeout: float) -> Schema:
        """Read the version. Create no file and change nothing."""
        ...

    async def migrate(self, runtime: Runtime) -> None:
        """Migrate to the latest version. Do nothing if the schema is up to date."""
        ...


class Transactions(Protocol):
    """Works inside the caller's own transaction."""

    def join(self, connection: Any, runtime: Runtime) -> JoinedStore: ...


class Commits(Protocol):
    """Reports how a transaction ended, even if the reply to its COMMIT was lost."""

    async def committed(self, number: str, *, timeout: float) -> bool:
        """Wait until the transaction has ended. Return whether it committed. Raise StoreUnavailable on timeout."""
        ...


class AppliesEvents(Protocol):
    """Applies events to the latest state of their entities, by the rules of `protocol.latest`."""

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        """Return one result per delivery, in their order, as if they had been applied one after the other.

        All deliveries of one entity in the batch are applied in one atomic step, together with their marks. There is no
        guarantee across entities. Orders are compared byte by byte. The call may be repeated: a delivery that was
        applied before is then a duplicate, and the state does not change.
        """
        ...

    async def read_latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        """Return the state of each entity; None if there is none, or if it was deleted and has expired."""
        ...


class JoinedStore(AppliesEvents, Protocol):
    """A store that works inside the caller's transaction. It never commits."""

    exclusive: bool
    """Whether the open transaction blocks every other writer, including our own heartbeat."""

    number: str | None
    """The id of the transaction, if the store can tell later whether it committed (`Commits`)."""

    block: str
    """What the caller writes after `with` to open such a transaction, for error messages."""

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]: ...
    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]: ...
    async def settle(self, settlements: Sequence[AnySettlement], *, timeout: float) -> list[Answer]: ...
    def is_open(self) -> bool:
        """Return whether the caller's transaction is neither committed nor rolled back."""
        ...

    def is_lost(self) -> bool:
        """Return whether the caller's connection broke, or was closed because a call timed out."""
        ...

    def blocks_writes(self) -> bool:
        """Return whether the transaction may block the store's own writes. Thread-safe, without side effects."""
        ...

    async def begin(self, *, timeout: float) -> None:
        """Set a savepoint."""

    async def keep(self) -> bool:
        """Release the savepoint and keep what was written since. False: the transaction has ended meanwhile."""
        ...

    async def undo(self) -> bool:
        """Roll back to the savepoint; the transaction stays usable. False: the transaction has ended meanwhile."""
        ...

    async def abandon(self) -> bool:
        """Roll back a transaction that was opened after the joined one ended. Return whether there was one."""
        ...


class LatestStates(AppliesEvents, Protocol):
    """Keeps the latest state of entities, and lists them for operators."""

    async def expire_latest(self, limit: int, *, timeout: float) -> int:
        """Delete up to `limit` expired marks and expired deleted entities. Return how many were deleted."""
        ...

    async def entities(
        self, scope: str, *, cursor: bytes | None, limit: int, timeout: float
    ) -> tuple[list[EntityState], bytes | None]:
        """Return up to `limit` entities of the scope that have a value, and the cursor of the next page, or None.

        The order is the store's own, and a page may be short. The call may read every entity of the store.
        """
        ...

    async def marks(self, ids: Sequence[bytes], *, timeout: float) -> list[DedupMark | None]:
        """Return each mark; None if it does not exist or has expired."""
        ...


class Counters(Protocol):
    """Keeps the counters of all processes, by hour, for COUNTS_RETENTION."""

    async def save_counts(self, counter_rows: Sequence[CounterRow], *, timeout: float) -> int:
        """Write these rows, each replacing an earlier row of its process and hour. Return the store's time.

        One call writes all rows, however many scopes they have. A row with a lower number than the stored one changes
        nothing: a later write was faster. Without rows, the call only returns the time. It also deletes old rows.
        """
        ...

    async def read_counts(self, since: int, *, timeout: float) -> StoredCounts:
        """Return the rows of this hour (since 1970) and of later ones, of all processes, within COUNTS_RETENTION."""
        ...

    async def expire_counts(self, limit: int, *, timeout: float) -> int:
        """Delete up to `limit` rows that are older than COUNTS_RETENTION. Return how many were deleted."""
        ...


class HealthFinding(Struct, frozen=True):
    """One result of a store's self-check, for operators: whether it is as it should be, and the facts.

    `unsafe`: the store may lose data, so opening it for work is refused; `detail` says what to do.
    """

    name: str
    ok: bool
    detail: str
    unsafe: bool = False


class Health(Protocol):
    """Checks how safe the data is."""

    async def examine(self, *, timeout: float) -> list[HealthFinding]: ...
    async def open_for_inspection(self, runtime: Runtime) -> None:
        """Open the store even if it is unsafe: `examine` reports what is unsafe."""
        ...


class Erasure(Protocol):
    """Permanently deletes everything that names a key. Each call may use several transactions, and can be repeated."""

    async def delete_free(self, records: Sequence[Record], *, timeout: float) -> int:
        """Delete the records that are FREE now, regardless of the age of their tokens. Return how many were deleted.

        A later claim of the key gets a larger token, because tokens follow the store's clock.
        """
        ...

    async def find_entities(self, wanted: ErasureFilter, *, timeout: float) -> list[FoundEntity]:
        """Return the matching entities with a latest state, including deleted ones whose order is still stored."""
        ...

    async def delete_entities(self, found: Sequence[FoundEntity], *, timeout: float) -> int:
        """Delete the states of these entities. Return how many were deleted."""
        ...

    async def redact_audit(self, wanted: ErasureFilter, *, timeout: float) -> int:
        """Remove id, scope, key and reason from the audit entries of matching keys. Return how many were changed.

        The command, the time and the person are kept.
        """
        ...

    async def add_audit(self, signed: AuditSignature, count: int, *, timeout: float) -> None:
        """Add an audit entry without a key that counts the erased records."""
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
        return None

    @property
    def notifications(self) -> Notifications | None:
        return None

    @property
    def sorting(self) -> Sorting | None:
        return None

    @property
    def listing(self) -> Listing | None:
        return None

    @property
    def migrations(self) -> Migrations | None:
        return None

    @property
    def transactions(self) -> Transactions | None:
        return None

    @property
    def commits(self) -> Commits | None:
        return None

    @property
    def latest(self) -> LatestStates | None:
        return None

    @property
    def counters(self) -> Counters | None:
        return None

    @property
    def health(self) -> Health | None:
        return None

    @property
    def erasure(self) -> Erasure | None:
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
