"""What a store may offer beyond the port: each capability is a protocol of its own, checked with `isinstance`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec import Struct

from .ports import Filter, Page, SortOrder
from .record import CompletedRecord
from .requests import Answer, AnyRequest, AnySettlement, ClaimRequest, Renewal
from .runtime import Runtime

if TYPE_CHECKING:
    from .counters import CounterRow, StoredCounts
    from .latest import DedupMark, EntityState, EventDelivery, LatestResult, Retention


@runtime_checkable
class SupportsLookup(Protocol):
    """A store that can show what is done without being asked for a claim: no write, and no waiting for one."""

    def lookup(self, id: bytes, fingerprint: bytes) -> CompletedRecord | None:
        """The record, if `transitions.replays` holds for it now; None: the key has to be claimed. May block."""
        ...


@runtime_checkable
class AnswersInline(Protocol):
    """A store in whose calls nothing can wait: it is asked without a detour through a coroutine."""

    def answer(self, request: AnyRequest) -> Answer:
        """As `claim`, `renew` or `settle` with this one request."""
        ...


@runtime_checkable
class LimitsResultSize(Protocol):
    """A store whose records have room for so much, and no more."""

    largest: int
    """Bytes of a result as it is stored. What is larger is not kept, as if `max_result_bytes` said so."""


@runtime_checkable
class OverlapsCalls(Protocol):
    """A store that works on one call while its caller works on the answer to another, on an event loop."""

    parts: int
    """In how many calls a large batch had better come."""


NO_SIZE_LIMIT = 1 << 62
"""Of stores that take whatever comes."""


@runtime_checkable
class NotifiesChanges(Protocol):
    """A store that can wake those who wait for a key."""

    def watch(self, id: bytes, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` (from any thread) when the record changes; returns how to stop watching."""
        ...


@runtime_checkable
class SortsRecords(Protocol):
    """A store that finds the first records of an order without handing out all of them. For people: it may be slow."""

    async def first(self, wanted: Filter, *, order: SortOrder, limit: int, timeout: float) -> Page:
        """One page, in that order; there is no next one."""
        ...


class Schema(Struct, frozen=True):
    """The version of a store's tables, the one that this code writes, and the statements that lead there."""

    version: int
    latest: int
    min_reader: int
    statements: tuple[str, ...]
    """To be executed in one transaction. Empty if there is nothing to do."""


@runtime_checkable
class MigratesSchema(Protocol):
    """A store with tables that grow from version to version. Both work before `open`."""

    async def schema(self, runtime: Runtime, *, timeout: float) -> Schema:
        """Only looks: makes no file and changes nothing."""
        ...

    async def migrate(self, runtime: Runtime) -> None:
        """Bring it up to date; does nothing if it is."""
        ...


@runtime_checkable
class JoinsTransaction(Protocol):
    """A store that can work inside the caller's own transaction."""

    def join(self, connection: Any, runtime: Runtime) -> JoinedStore: ...


@runtime_checkable
class RemembersCommits(Protocol):
    """A store that can tell how a transaction ended even if the answer to its COMMIT was lost."""

    async def committed(self, number: str, *, timeout: float) -> bool:
        """Waits until it is decided; StoreUnavailable if it is not in that time."""
        ...


class JoinedStore(Protocol):
    """The store seen from inside the caller's transaction: nothing is committed here."""

    exclusive: bool
    """Whether nobody else can write while the transaction is open, our own keeper included."""

    number: str | None
    """The transaction's own number, where a store can tell later how that one ended."""

    block: str
    """What their caller writes behind `with` for such a transaction, as far as we can tell: for messages."""

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]: ...
    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]: ...
    async def settle(self, settlements: Sequence[AnySettlement], *, timeout: float) -> list[Answer]: ...
    def is_open(self) -> bool:
        """Whether the caller's transaction is still open: neither committed nor rolled back."""
        ...

    def blocks_writes(self) -> bool:
        """Whether it may keep the store's own calls from writing. May be asked on any thread, and changes nothing."""
        ...

    async def begin(self, *, timeout: float) -> None:
        """Mark a point to return to."""

    async def keep(self) -> bool:
        """Forget the point: what was written since stays in the transaction. False: it was ended meanwhile."""
        ...

    async def undo(self) -> bool:
        """Return to the point: what was written since is gone, the transaction stays usable. False: as above."""
        ...

    async def abandon(self) -> bool:
        """Roll back what began after the end of the transaction that was joined; tells whether anything had."""
        ...


class AppliesLatest(Protocol):
    """Where deliveries of events become the state of their entities, by the rule of `protocol.latest`."""

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        """One answer a delivery, in their order, as if they had come one after the other.

        All deliveries of one entity in the batch, with their marks, are one atomic step; across entities nothing is
        promised. Orders are compared byte by byte. May be repeated: a delivery that was applied before is then called
        a duplicate, and the state stays what it is.
        """
        ...

    async def latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        """The state of each entity; None if there is none, or only what is left of a deleted one and has expired."""
        ...


@runtime_checkable
class KeepsLatest(AppliesLatest, Protocol):
    """A store that keeps the newest state of entities."""

    async def expire_latest(self, limit: int, *, timeout: float) -> int:
        """Delete up to `limit` marks and deleted entities that have expired; tells how many went."""
        ...


@runtime_checkable
class ListsLatest(Protocol):
    """A store that can show which entities there are, and what it knows of a message or an event. For people."""

    async def entities(
        self, scope: str, *, cursor: bytes | None, limit: int, timeout: float
    ) -> tuple[list[EntityState], bytes | None]:
        """Those of this scope that have a value, at most so many, and the cursor of the others; None: there are none.

        In the store's own order; a page may be short. May look at every entity of the store.
        """
        ...

    async def marks(self, ids: Sequence[bytes], *, timeout: float) -> list[DedupMark | None]:
        """What is known under each mark; None if nothing is, or not any more."""
        ...


@runtime_checkable
class JoinsLatest(AppliesLatest, Protocol):
    """A `JoinedStore` that does so inside the caller's transaction."""


@runtime_checkable
class KeepsCounters(Protocol):
    """A store that keeps what processes have counted, by hour, for KEEP_COUNTS."""

    async def save_counts(self, sheets: Sequence[CounterRow], *, timeout: float) -> int:
        """Write these sheets, each in the place of an earlier one of its process and hour; tells the store's time.

        All in one call, however many scopes they have. A sheet with a lower number than the one that is there changes
        nothing: it was overtaken on its way. Without sheets it only tells the time. By the way, old sheets are deleted.
        """
        ...

    async def read_counts(self, since: int, *, timeout: float) -> StoredCounts:
        """The sheets of this hour (since 1970) and of later ones, of all processes. None that is older than kept."""
        ...

    async def expire_counts(self, limit: int, *, timeout: float) -> int:
        """Delete up to `limit` sheets that are older than KEEP_COUNTS; tells how many went."""
        ...


class HealthFinding(Struct, frozen=True):
    """What a store says about itself, for people: whether that is as it should be, and the facts.

    `unsafe`: what it holds may vanish, so it refuses to be opened for work; `detail` says what to do.
    """

    name: str
    well: bool
    detail: str
    unsafe: bool = False


@runtime_checkable
class ReportsHealth(Protocol):
    """A store that can tell how safe it is what it holds."""

    async def examine(self, *, timeout: float) -> list[HealthFinding]: ...


@runtime_checkable
class RefusesUnsafe(Protocol):
    """A store that `open` refuses where what it holds may vanish."""

    async def open_for_inspection(self, runtime: Runtime) -> None:
        """Open it all the same, for those who only look: `examine` tells what is unsafe."""
        ...
