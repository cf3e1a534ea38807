"""What the core asks of the world: a store, a clock, and a way to wait. Everything else is built on these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from .model.audit import AuditEntry, AuditFilter, Signature
from .model.record import (
    Answer,
    ClaimRequest,
    Complete,
    Done,
    Fail,
    Park,
    Record,
    Release,
    Renewal,
    Resolve,
    Seen,
    State,
)

if TYPE_CHECKING:
    from .model.counts import Counted, Sheet  # only for those who keep counts
    from .model.newest import Delivery, Keep, Mark, Ruled, Standing  # only for those who keep the newest

T = TypeVar("T")

AnySettlement = Complete | Fail | Park | Release | Resolve
AnyRequest = ClaimRequest | Renewal | AnySettlement

Answers = Coroutine[Any, Any, list[Answer]]
"""To be awaited once: one for each request, in their order."""

Send = Callable[[Sequence[AnyRequest], float], Answers]
"""Requests of any kind, each for another key, to the store in one call; the timeout in seconds."""


class Clock(Protocol):
    """The store's clock, in µs since 1970. Stores with a clock of their own do not use it."""

    def now(self) -> int: ...


class Filter(Struct, frozen=True):
    """Which records a scan wants. Empty means all."""

    states: tuple[State, ...] = ()
    scope: str | None = None
    key: str | None = None
    updated_before: int | None = None


class Order(StrEnum):
    """Which records come first: those touched or made last, or by their readable keys."""

    UPDATED = "updated"
    CREATED = "created"
    KEY = "key"


PLACES: dict[Order, Callable[[Record], tuple[Any, bytes]]] = {
    Order.UPDATED: lambda record: (-record.updated_at, record.id),
    Order.CREATED: lambda record: (-record.created_at, record.id),
    Order.KEY: lambda record: (record.key, record.id),
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


class Gate(Protocol):
    """A wait that somebody on another thread may end early. `open` may be called from anywhere."""

    def open(self) -> None: ...
    async def wait(self, seconds: float) -> None: ...


class Canceller(Protocol):
    """Cancels one piece of work, unless that is over by the time the word arrives."""

    def __call__(self) -> None:
        """May be called from any thread."""

    def over(self, error: BaseException | None) -> bool:
        """The work has ended, in this way; True if that is the cancellation from here, which then is dealt with."""
        ...


class Lane(Protocol):
    """Group commit: what arrives while a call is under way goes to the store together, in the next one."""

    def ask(self, request: AnyRequest, timeout: float) -> Awaitable[list[Answer]]:
        """The answer to one request, in a list of one."""
        ...


class Steady(Protocol):
    """A request under way, whose answer a flow may await as it is: no cancellation reaches the request."""

    @property
    def future(self) -> Awaitable[Answer]: ...

    async def despite(
        self, error: BaseException, hurry: Callable[[], None] | None = None
    ) -> tuple[list[Answer], BaseException]:
        """What the future raised: a cancellation comes back beside the answer, anything else is raised again."""
        ...


class World(Protocol):
    """What differs between threads and an event loop."""

    cancels: bool
    """Whether calls are tasks, which can be cancelled while they wait. Elsewhere only a signal interrupts a call."""

    @property
    def steady(self) -> type[Steady] | None:
        """What lanes of this world answer with, if it is that: then `finish` is one coroutine more than is needed."""

    def check(self) -> None:
        """Raise WrongWorld if this call stands in the other world."""

    def monotonic(self) -> float: ...
    def jitter(self) -> float:
        """A random number in [0, 1)."""
        ...

    def nonce(self) -> bytes: ...
    def canceller(self) -> Canceller | None:
        """How to cancel the work that runs here now; None where that cannot be done."""
        ...

    def gate(self) -> Gate: ...
    def lane(self, send: Send, *, flights: int = 1, crowd: int = 1) -> Lane:
        """Group commit for a store that takes requests of any kind in one call.

        `flights`: how many calls may be under way at once, where calls do not block each other. `crowd`: so many must
        wait for one more of them to be worth what it costs, and no key is in two of them. `send` runs in no task of its
        own: what it awaits are futures, or calls of this world; a driver that asks for a task needs one.
        """
        ...

    async def sleep(self, seconds: float) -> None: ...
    async def ready(self, socket: int, *, writing: bool, seconds: float) -> bool:
        """Wait until a socket has something to read (or, if `writing`, takes more); False: not in that time."""
        ...

    async def offload(self, call: Callable[..., T], *arguments: Any) -> T:
        """Run a call that may block for long where it blocks nobody else."""
        ...

    async def think(self, call: Callable[..., T], *arguments: Any) -> T:
        """Run a call that computes for long where it blocks nobody else, and no call to the store either."""
        ...

    def finish(
        self, work: Awaitable[T], hurry: Callable[[], None] | None = None
    ) -> Awaitable[tuple[T, BaseException | None]]:
        """Run to the end even if the caller is cancelled meanwhile; the cancellation comes back beside the result.

        `hurry` is called at the first cancellation.
        """
        ...


class Store(Protocol):
    """Holds records. Batch-first; atomic per key, not across the batch; at most one request a key a batch.

    Each method applies the function of the same name in `model.transitions` to each record. `timeout` bounds the
    call in seconds; a store that cannot answer in time raises StoreUnavailable, which means *unknown*, not *no*.

    What is `signed` is a change by hand: it enters the audit trail in the same step as the change. A store that has no
    such step writes the entry first: never a change without its entry. What changes nothing leaves no entry.
    """

    name: str
    """Where it is, for people: never with a password."""

    inline: bool
    """True if calls never wait for anything but a short lock (memory)."""

    async def open(self, world: World) -> None:
        """Connect. May be called again, also by two callers at once; the last world holds."""

    async def close(self) -> None: ...
    def twin(self) -> Store:
        """Another store on the same data with a connection of its own, not yet open (the keeper's)."""
        ...

    def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> Answers: ...
    def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> Answers: ...
    def settle(
        self, settlements: Sequence[AnySettlement], *, timeout: float, signed: Signature | None = None
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
        seen: Mapping[bytes, Seen] | None = None,
        signed: Signature | None = None,
    ) -> list[Answer]:
        """Those of which it is known what was `seen` are spared if they have become another record since."""
        ...

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page: ...
    async def counts(self, *, timeout: float) -> dict[tuple[str, State], int]: ...
    async def purge(self, limit: int, *, timeout: float, signed: Signature | None = None) -> int:
        """Delete up to `limit` records that answer for nothing any more; tells how many went.

        Also audit entries older than KEEP_AUDIT, which are not counted.
        """
        ...

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        """What was changed by hand: the newest first, at most `limit`."""
        ...


@runtime_checkable
class Glances(Protocol):
    """A store that can show what is done without being asked for a claim: no write, and no waiting for one."""

    def glance(self, id: bytes, fingerprint: bytes) -> Done | None:
        """The record, if `transitions.replays` holds for it now; None: the key has to be claimed. May block."""
        ...


@runtime_checkable
class Immediate(Protocol):
    """A store in whose calls nothing can wait: it is asked without a detour through a coroutine."""

    def answer(self, request: AnyRequest) -> Answer:
        """As `claim`, `renew` or `settle` with this one request."""
        ...


@runtime_checkable
class Bounds(Protocol):
    """A store whose records have room for so much, and no more."""

    largest: int
    """Bytes of a result as it is stored. What is larger is not kept, as if `max_result_bytes` said so."""


@runtime_checkable
class Overlaps(Protocol):
    """A store that works on one call while its caller works on the answer to another, on an event loop."""

    parts: int
    """In how many calls a large batch had better come."""


NO_BOUND = 1 << 62
"""Of stores that take whatever comes."""


@runtime_checkable
class Notifies(Protocol):
    """A store that can wake those who wait for a key."""

    def watch(self, id: bytes, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` (from any thread) when the record changes; returns how to stop watching."""
        ...


@runtime_checkable
class Sorts(Protocol):
    """A store that finds the first records of an order without handing out all of them. For people: it may be slow."""

    async def first(self, wanted: Filter, *, order: Order, limit: int, timeout: float) -> Page:
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
class Migrates(Protocol):
    """A store with tables that grow from version to version. Both work before `open`."""

    async def schema(self, world: World, *, timeout: float) -> Schema:
        """Only looks: makes no file and changes nothing."""
        ...

    async def migrate(self, world: World) -> None:
        """Bring it up to date; does nothing if it is."""
        ...


@runtime_checkable
class JoinsTransaction(Protocol):
    """A store that can work inside the caller's own transaction."""

    def join(self, connection: Any, world: World) -> JoinedStore: ...


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

    def is_in_the_way(self) -> bool:
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


class AppliesNewest(Protocol):
    """Where deliveries of events become the state of their entities, by the rule of `model.newest`."""

    async def keep_newest(self, deliveries: Sequence[Delivery], keep: Keep, *, timeout: float) -> list[Ruled]:
        """One answer a delivery, in their order, as if they had come one after the other.

        All deliveries of one entity in the batch, with their marks, are one atomic step; across entities nothing is
        promised. Orders are compared byte by byte. May be repeated: a delivery that was applied before is then called
        a duplicate, and the state stays what it is.
        """
        ...

    async def newest(self, ids: Sequence[bytes], *, timeout: float) -> list[Standing | None]:
        """The state of each entity; None if there is none, or only what is left of a deleted one and has expired."""
        ...


@runtime_checkable
class KeepsNewest(AppliesNewest, Protocol):
    """A store that keeps the newest state of entities."""

    async def expire_newest(self, limit: int, *, timeout: float) -> int:
        """Delete up to `limit` marks and deleted entities that have expired; tells how many went."""
        ...


@runtime_checkable
class ShowsNewest(Protocol):
    """A store that can show which entities there are, and what it knows of a message or an event. For people."""

    async def entities(
        self, scope: str, *, cursor: bytes | None, limit: int, timeout: float
    ) -> tuple[list[Standing], bytes | None]:
        """Those of this scope that have a value, at most so many, and the cursor of the others; None: there are none.

        In the store's own order; a page may be short. May look at every entity of the store.
        """
        ...

    async def marks(self, ids: Sequence[bytes], *, timeout: float) -> list[Mark | None]:
        """What is known under each mark; None if nothing is, or not any more."""
        ...


@runtime_checkable
class JoinsNewest(AppliesNewest, Protocol):
    """A `JoinedStore` that does so inside the caller's transaction."""


@runtime_checkable
class KeepsCounts(Protocol):
    """A store that keeps what processes have counted, by hour, for KEEP_COUNTS."""

    async def keep_counts(self, sheets: Sequence[Sheet], *, timeout: float) -> int:
        """Write these sheets, each in the place of an earlier one of its process and hour; tells the store's time.

        All in one call, however many scopes they have. A sheet with a lower number than the one that is there changes
        nothing: it was overtaken on its way. Without sheets it only tells the time. By the way, old sheets are deleted.
        """
        ...

    async def counted(self, since: int, *, timeout: float) -> Counted:
        """The sheets of this hour (since 1970) and of later ones, of all processes. None that is older than kept."""
        ...

    async def expire_counts(self, limit: int, *, timeout: float) -> int:
        """Delete up to `limit` sheets that are older than KEEP_COUNTS; tells how many went."""
        ...


class Remark(Struct, frozen=True):
    """What a store says about itself, for people: whether that is as it should be, and the facts.

    `unsafe`: what it holds may vanish, so it refuses to be opened for work; `detail` says what to do.
    """

    name: str
    well: bool
    detail: str
    unsafe: bool = False


@runtime_checkable
class Examines(Protocol):
    """A store that can tell how safe it is what it holds."""

    async def examine(self, *, timeout: float) -> list[Remark]: ...


@runtime_checkable
class RefusesUnsafe(Protocol):
    """A store that `open` refuses where what it holds may vanish."""

    async def open_to_look(self, world: World) -> None:
        """Open it all the same, for those who only look: `examine` tells what is unsafe."""
        ...
