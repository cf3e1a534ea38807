"""What the core asks of the world: a store, a clock, and a way to wait. Everything else is built on these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from .model.record import Answer, ClaimRequest, Complete, Done, Fail, Park, Record, Release, Renewal, Resolve, State

T = TypeVar("T")

AnySettlement = Complete | Fail | Park | Release | Resolve
AnyRequest = ClaimRequest | Renewal | AnySettlement

Send = Callable[[Sequence[AnyRequest], float], Coroutine[Any, Any, list[Answer]]]
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


class Page(Struct, frozen=True):
    """One page of a scan; `cursor` None means that it was the last. `now` is the store's time."""

    records: list[Record]
    cursor: bytes | None
    now: int


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

    def __call__(self, request: AnyRequest, timeout: float) -> Awaitable[list[Answer]]:
        """The answer to one request, in a list of one."""
        ...


class World(Protocol):
    """What differs between threads and an event loop."""

    cancels: bool
    """Whether calls are tasks, which can be cancelled while they wait. Elsewhere only a signal interrupts a call."""

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
    def lane(self, send: Send) -> Lane:
        """Group commit for a store that takes requests of any kind in one call."""
        ...

    async def sleep(self, seconds: float) -> None: ...
    async def offload(self, call: Callable[..., T], *arguments: Any) -> T:
        """Run a call that may block for long where it blocks nobody else."""
        ...

    async def think(self, call: Callable[..., T], *arguments: Any) -> T:
        """Run a call that computes for long where it blocks nobody else, and no call to the store either."""
        ...

    async def finish(
        self, work: Awaitable[T], hurry: Callable[[], None] | None = None
    ) -> tuple[T, BaseException | None]:
        """Run to the end even if the caller is cancelled meanwhile; the cancellation comes back beside the result.

        `hurry` is called at the first cancellation.
        """
        ...


class Store(Protocol):
    """Holds records. Batch-first; atomic per key, not across the batch; at most one request a key a batch.

    Each method applies the function of the same name in `model.transitions` to each record. `timeout` bounds the
    call in seconds; a store that cannot answer in time raises StoreUnavailable, which means *unknown*, not *no*.
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

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]: ...
    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]: ...
    async def settle(self, settlements: Sequence[AnySettlement], *, timeout: float) -> list[Answer]: ...
    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        """Verdict OK with the record, or ABSENT."""
        ...

    async def forget(self, ids: Sequence[bytes], *, force: bool, timeout: float) -> list[Answer]: ...
    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page: ...
    async def counts(self, *, timeout: float) -> dict[tuple[str, State], int]: ...
    async def purge(self, limit: int, *, timeout: float) -> int:
        """Delete up to `limit` records that answer for nothing any more; tells how many went."""
        ...


@runtime_checkable
class Glances(Protocol):
    """A store that can show what is done without being asked for a claim: no write, and no waiting for one."""

    def glance(self, id: bytes, fingerprint: bytes) -> Done | None:
        """The record, if `transitions.replays` holds for it now; None: the key has to be claimed. May block."""
        ...


@runtime_checkable
class Notifies(Protocol):
    """A store that can wake those who wait for a key."""

    def watch(self, id: bytes, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` (from any thread) when the record changes; returns how to stop watching."""
        ...


@runtime_checkable
class JoinsTransaction(Protocol):
    """A store that can work inside the caller's own transaction."""

    def join(self, connection: Any, world: World) -> JoinedStore: ...


class JoinedStore(Protocol):
    """The store seen from inside the caller's transaction: nothing is committed here."""

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]: ...
    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]: ...
    async def settle(self, settlements: Sequence[AnySettlement], *, timeout: float) -> list[Answer]: ...
    def is_open(self) -> bool:
        """Whether the caller's transaction is still open: neither committed nor rolled back."""
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
