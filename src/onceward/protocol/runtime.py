"""What the engine needs from its runtime: waiting, batching, offloading. Implemented for threads and for asyncio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from .requests import Answer, AnyRequest

T = TypeVar("T")

Answers = Coroutine[Any, Any, list[Answer]]
"""A coroutine that returns one answer per request, in their order."""


Send = Callable[[Sequence[AnyRequest], float], Answers]
"""Send requests of any kind, each for another key, to the store in one call. The float is the timeout in seconds."""


class Gate(Protocol):
    """A wait that another thread may end early: `open` may be called from any thread."""

    def open(self) -> None: ...
    async def wait(self, seconds: float) -> None: ...


class Canceller(Protocol):
    """Cancels one piece of work, unless it has ended before the cancellation arrives."""

    def __call__(self) -> None:
        """Cancel the work. May be called from any thread."""

    def work_ended(self, error: BaseException | None) -> bool:
        """Note that the work has ended with this error. Return True if our cancellation caused it, and consume it."""
        ...


class Batcher(Protocol):
    """Group commit: requests that arrive while a call is in flight are sent together in the next call."""

    def ask(self, request: AnyRequest, timeout: float) -> Awaitable[list[Answer]]:
        """Return the answer to one request, in a list of one."""
        ...

    def waiting(self) -> int:
        """Return how many requests wait for the next call."""
        ...


class ShieldedRequest(Protocol):
    """A request in flight. Cancelling a flow that awaits its answer does not cancel the request."""

    @property
    def future(self) -> Awaitable[Answer]: ...

    async def finish_after(
        self, error: BaseException, on_cancel: Callable[[], None] | None = None
    ) -> tuple[list[Answer], BaseException]:
        """Handle `error`, raised by awaiting `future`: return a cancellation with the answer, re-raise other errors."""
        ...


class Runtime(Protocol):
    """Everything that differs between threads and an event loop."""

    supports_cancellation: bool
    """Whether calls run in tasks, which can be cancelled while they wait. Threads are only interrupted by signals."""

    @property
    def shielded_type(self) -> type[ShieldedRequest] | None:
        """The type that batchers of this runtime return if it is already shielded: it needs no call of `shield`."""

    def check(self) -> None:
        """Raise WrongRuntime if this call is made from the other runtime."""

    def monotonic(self) -> float: ...
    def jitter(self) -> float:
        """Return a random number in [0, 1)."""
        ...

    def nonce(self) -> bytes: ...
    def canceller(self) -> Canceller | None:
        """Return a canceller of the current work; None if it cannot be cancelled."""
        ...

    def gate(self) -> Gate: ...
    def batcher(self, send: Send, *, max_in_flight: int = 1) -> Batcher:
        """Return a batcher for a store that takes requests of any kind in one call.

        `max_in_flight` is how many calls may be in flight at once, if calls do not block each other. No key is in two
        calls. On an event loop, `send` runs in a task of the batcher.
        """
        ...

    async def sleep(self, seconds: float) -> None: ...
    async def wait_for_socket(self, socket: int, *, writing: bool, seconds: float) -> bool:
        """Wait until a socket is readable (or, with `writing`, writable). Return False on timeout."""
        ...

    async def offload(self, call: Callable[..., T], *arguments: Any) -> T:
        """Run a blocking call on another thread if it would block other callers here."""
        ...

    async def compute(self, call: Callable[..., T], *arguments: Any) -> T:
        """Run a CPU-bound call where it blocks neither other callers nor calls to the store."""
        ...

    def shield(
        self, work: Awaitable[T], on_cancel: Callable[[], None] | None = None
    ) -> Awaitable[tuple[T, BaseException | None]]:
        """Run the work to its end even if the caller is cancelled. Return its result and the cancellation, if any.

        `on_cancel` is called at the first cancellation.
        """
        ...


class WorkerPool(Protocol):
    """Runs work concurrently with the loop that looks for it."""

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start the work concurrently. The work must not raise."""

    def wake(self) -> None:
        """End `sleep` early. May be called from any thread."""

    async def sleep(self, seconds: float, stopping: Callable[[], bool]) -> None: ...
    async def finish(self) -> None:
        """Wait for everything that was started."""
