"""Optional capabilities of stores. Each one is a protocol of its own, checked with `isinstance`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec import Struct

from .ports import Filter, Page, SortOrder
from .record import CompletedRecord
from .requests import Answer, AnySettlement, ClaimRequest, Renewal
from .runtime import Runtime

if TYPE_CHECKING:
    from .counters import CounterRow, StoredCounts
    from .latest import DedupMark, EntityState, EventDelivery, LatestResult, Retention


@runtime_checkable
class SupportsLookup(Protocol):
    """A store that can look up a completed record without a claim: it neither writes nor waits for a write."""

    def lookup(self, id: bytes, fingerprint: bytes) -> CompletedRecord | None:
        """Return the record if `transitions.replays` is true for it. None: the caller must claim. May block."""
        ...


@runtime_checkable
class LimitsResultSize(Protocol):
    """A store that limits the size of a stored result."""

    max_result_bytes: int
    """Maximum size of an encoded result. A larger one is not stored, as with the setting `max_result_bytes`."""


@runtime_checkable
class OverlapsCalls(Protocol):
    """A store that, on an event loop, can process one call while the caller handles the answer to another."""

    batch_splits: int
    """Into how many calls a large batch should be split."""


NO_SIZE_LIMIT = 1 << 62
"""`max_result_bytes` of a store without a limit."""


@runtime_checkable
class NotifiesChanges(Protocol):
    """A store that can notify callers that wait for a key."""

    def watch(self, id: bytes, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` (from any thread) when the record changes. Return a function that stops watching."""
        ...


@runtime_checkable
class SortsRecords(Protocol):
    """A store that can return the first records in a sort order without a full scan by the caller. May be slow."""

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


@runtime_checkable
class MigratesSchema(Protocol):
    """A store with a versioned schema. Both methods work before `open`."""

    async def schema(self, runtime: Runtime, *, timeout: float) -> Schema:
        """Read the version. Create no file and change nothing."""
        ...

    async def migrate(self, runtime: Runtime) -> None:
        """Migrate to the latest version. Do nothing if the schema is up to date."""
        ...


@runtime_checkable
class JoinsTransaction(Protocol):
    """A store that can work inside the caller's own transaction."""

    def join(self, connection: Any, runtime: Runtime) -> JoinedStore: ...


@runtime_checkable
class RemembersCommits(Protocol):
    """A store that can tell how a transaction ended even if the reply to its COMMIT was lost."""

    async def committed(self, number: str, *, timeout: float) -> bool:
        """Wait until the transaction has ended. Return whether it committed. Raise StoreUnavailable on timeout."""
        ...


class JoinedStore(Protocol):
    """A store that works inside the caller's transaction. It never commits."""

    exclusive: bool
    """Whether the open transaction blocks every other writer, including our own heartbeat."""

    number: str | None
    """The id of the transaction, if the store can tell later whether it committed (`RemembersCommits`)."""

    block: str
    """What the caller writes after `with` to open such a transaction, for error messages."""

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]: ...
    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]: ...
    async def settle(self, settlements: Sequence[AnySettlement], *, timeout: float) -> list[Answer]: ...
    def is_open(self) -> bool:
        """Return whether the caller's transaction is neither committed nor rolled back."""
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


class AppliesLatest(Protocol):
    """A store that applies events to the latest state of their entities, by the rules of `protocol.latest`."""

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        """Return one result per delivery, in their order, as if they had been applied one after the other.

        All deliveries of one entity in the batch are applied in one atomic step, together with their marks. There is no
        guarantee across entities. Orders are compared byte by byte. The call may be repeated: a delivery that was
        applied before is then a duplicate, and the state does not change.
        """
        ...

    async def latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        """Return the state of each entity; None if there is none, or if it was deleted and has expired."""
        ...


@runtime_checkable
class KeepsLatest(AppliesLatest, Protocol):
    """A store that keeps the latest state of entities."""

    async def expire_latest(self, limit: int, *, timeout: float) -> int:
        """Delete up to `limit` expired marks and expired deleted entities. Return how many were deleted."""
        ...


@runtime_checkable
class ListsLatest(Protocol):
    """A store that can list its entities and look up the marks of messages and events, for operators."""

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


@runtime_checkable
class JoinsLatest(AppliesLatest, Protocol):
    """A `JoinedStore` that applies events inside the caller's transaction."""


@runtime_checkable
class KeepsCounters(Protocol):
    """A store that keeps the counters of all processes, by hour, for COUNTS_RETENTION."""

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


@runtime_checkable
class ReportsHealth(Protocol):
    """A store that can check how safe its data is."""

    async def examine(self, *, timeout: float) -> list[HealthFinding]: ...


@runtime_checkable
class RefusesUnsafe(Protocol):
    """A store whose `open` refuses a server that may lose data."""

    async def open_for_inspection(self, runtime: Runtime) -> None:
        """Open the store although it is unsafe, to inspect it: `examine` reports what is unsafe."""
        ...
