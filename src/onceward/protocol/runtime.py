"""What the engine needs from its runtime: waiting, batching, offloading. Threads and asyncio each implement it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from .requests import Answer, AnyRequest

T = TypeVar("T")

Answers = Coroutine[Any, Any, list[Answer]]
"""To be awaited once: one for each request, in their order."""


Send = Callable[[Sequence[AnyRequest], float], Answers]
"""Requests of any kind, each for another key, to the store in one call; the timeout in seconds."""


class Gate(Protocol):
    """A wait that somebody on another thread may end early. `open` may be called from anywhere."""

    def open(self) -> None: ...
    async def wait(self, seconds: float) -> None: ...


class Canceller(Protocol):
    """Cancels one piece of work, unless that is over by the time the word arrives."""

    def __call__(self) -> None:
        """May be called from any thread."""

    def work_ended(self, error: BaseException | None) -> bool:
        """The work has ended, in this way; True if that is the cancellation from here, which then is dealt with."""
        ...


class Batcher(Protocol):
    """Group commit: what arrives while a call is under way goes to the store together, in the next one."""

    def ask(self, request: AnyRequest, timeout: float) -> Awaitable[list[Answer]]:
        """The answer to one request, in a list of one."""
        ...


class ShieldedRequest(Protocol):
    """A request under way, whose answer a flow may await as it is: no cancellation reaches the request."""

    @property
    def future(self) -> Awaitable[Answer]: ...

    async def finish_after(
        self, error: BaseException, on_cancel: Callable[[], None] | None = None
    ) -> tuple[list[Answer], BaseException]:
        """What the future raised: a cancellation comes back beside the answer, anything else is raised again."""
        ...


class Runtime(Protocol):
    """What differs between threads and an event loop."""

    supports_cancellation: bool
    """Whether calls are tasks, which can be cancelled while they wait. Elsewhere only a signal interrupts a call."""

    @property
    def shielded_type(self) -> type[ShieldedRequest] | None:
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
    def batcher(self, send: Send, *, max_in_flight: int = 1, min_batch: int = 1) -> Batcher:
        """Group commit for a store that takes requests of any kind in one call.

        `flights`: how many calls may be under way at once, where calls do not block each other. `crowd`: so many must
        wait for one more of them to be worth what it costs, and no key is in two of them. `send` runs in no task of its
        own: what it awaits are futures, or calls of this world; a driver that asks for a task needs one.
        """
        ...

    async def sleep(self, seconds: float) -> None: ...
    async def wait_for_socket(self, socket: int, *, writing: bool, seconds: float) -> bool:
        """Wait until a socket has something to read (or, if `writing`, takes more); False: not in that time."""
        ...

    async def offload(self, call: Callable[..., T], *arguments: Any) -> T:
        """Run a call that may block for long where it blocks nobody else."""
        ...

    async def compute(self, call: Callable[..., T], *arguments: Any) -> T:
        """Run a call that computes for long where it blocks nobody else, and no call to the store either."""
        ...

    def shield(
        self, work: Awaitable[T], on_cancel: Callable[[], None] | None = None
    ) -> Awaitable[tuple[T, BaseException | None]]:
        """Run to the end even if the caller is cancelled meanwhile; the cancellation comes back beside the result.

        `on_cancel` is called at the first cancellation.
        """
        ...


class WorkerPool(Protocol):
    """Who does the runs, beside the one who looks."""

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin it beside us. It raises nothing."""

    def wake(self) -> None:
        """End the rest early. May be called from anywhere."""

    async def sleep(self, seconds: float, stopping: Callable[[], bool]) -> None: ...
    async def finish(self) -> None:
        """Wait for everything that was started."""
