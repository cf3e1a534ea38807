"""The runtime of async clients, on asyncio. Only `AsyncOnce` imports this."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from onceward.errors import WrongRuntime
from onceward.protocol.fork import call_in_forked_child
from onceward.protocol.runtime import Send

from .async_batcher import AsyncBatcher, wrong_runtime
from .pending_request import PendingRequest
from .threads import POLL_INTERVAL, nonce

T = TypeVar("T")


class AsyncGate:
    """Ends a task's wait early, from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def open(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:  # the loop is closed: no task waits
            return

    async def wait(self, seconds: float) -> None:
        alarm = self._loop.call_later(seconds, self._event.set)  # not `asyncio.timeout`, which needs a task
        try:
            await self._event.wait()
        finally:
            alarm.cancel()
            self._event.clear()


class TaskCanceller:
    """Cancels the task that created it. It does not touch cancellations from elsewhere."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._others = self._task.cancelling() if self._task else 0
        self._cancelled = self._ended = False

    def __call__(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:  # the loop is closed: nothing runs there
            return

    def _cancel(self) -> None:
        if self._task is not None and not self._ended:
            self._cancelled = self._task.cancel()

    def work_ended(self, error: BaseException | None) -> bool:
        self._ended = True
        if self._task is None or not self._cancelled:
            return False
        self._cancelled = False
        return self._task.uncancel() <= self._others and isinstance(error, asyncio.CancelledError)


class AsyncioRuntime:
    """The runtime of `AsyncOnce`. Blocking calls of a store run in order in one thread of their own."""

    supports_cancellation = True
    shielded_type = PendingRequest

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        _runtimes.add(self)

    def check(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise wrong_runtime() from None

    monotonic = staticmethod(time.monotonic)

    def jitter(self) -> float:
        return random.random()  # noqa: S311 (not for security)

    nonce = staticmethod(nonce)

    def canceller(self) -> TaskCanceller:
        return TaskCanceller()

    def gate(self) -> AsyncGate:
        return AsyncGate()

    def batcher(self, send: Send, *, max_in_flight: int = 1) -> AsyncBatcher:
        return AsyncBatcher(send, max_in_flight)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait_for_socket(self, socket: int, *, writing: bool, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[bool] = loop.create_future()
        loop.add_reader(socket, _set_ready, ready, 1)
        if writing:
            loop.add_writer(socket, _set_ready, ready, 1)
        alarm = loop.call_later(max(seconds, 0), _set_ready, ready, 0)
        try:
            return await ready
        finally:
            alarm.cancel()
            loop.remove_reader(socket)
            if writing:
                loop.remove_writer(socket)

    async def offload(self, call: Callable[..., T], *arguments: Any) -> T:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="onceward-store")
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    async def compute(self, call: Callable[..., T], *arguments: Any) -> T:
        self.check()
        value, error = await asyncio.to_thread(_call_catching, call, *arguments)
        if error is not None:
            raise error
        return value

    async def shield(
        self, work: Awaitable[T], on_cancel: Callable[[], None] | None = None
    ) -> tuple[T, BaseException | None]:
        request: Any = work
        if type(request) is not PendingRequest:
            return await self._finish(work, on_cancel)
        answers: Any
        try:
            answers, cancelled = [await request.future], None
        except BaseException as error:  # noqa: BLE001 (raised again, unless it is a cancellation)
            answers, cancelled = await request.finish_after(error, on_cancel)
        return answers, cancelled

    async def _finish(self, work: Awaitable[T], on_cancel: Callable[[], None] | None) -> tuple[T, BaseException | None]:
        try:
            self.check()
        except WrongRuntime:
            if isinstance(work, Coroutine):
                work.close()  # it is not started
            raise
        task = asyncio.ensure_future(work)
        cancelled: BaseException | None = None
        while True:
            try:
                return await shielded(task), cancelled
            except asyncio.CancelledError as error:
                if task.cancelled():
                    raise
                if cancelled is None and on_cancel is not None:
                    on_cancel()
                cancelled = error
            except Exception as error:
                if cancelled is not None:
                    raise cancelled from error
                raise

    def forget_thread(self) -> None:
        """Forget the thread after a fork: it does not exist in the child."""
        self._thread = None

    def close(self) -> None:
        """Stop the store's thread when it is idle."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None


def shielded(inner: asyncio.Future[T]) -> asyncio.Future[T]:
    """Return a future that waits for `inner` and cannot cancel it: like `asyncio.shield`, but twice as fast."""
    outer: asyncio.Future[T] = inner.get_loop().create_future()

    def copy_result(inner: asyncio.Future[T]) -> None:
        if inner.cancelled():
            outer.cancel()
            return
        error = inner.exception()
        if outer.done():  # no caller waits
            return
        if error is None:
            outer.set_result(inner.result())
        else:
            outer.set_exception(error)

    inner.add_done_callback(copy_result)
    return outer


def _set_ready(ready: asyncio.Future[bool], sockets: int) -> None:
    if not ready.done():
        ready.set_result(sockets > 0)


class AsyncWorkerPool:
    """Runs each piece of work in its own task."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._wakeup = asyncio.Event()

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def wake(self) -> None:
        self._wakeup.set()

    async def sleep(self, seconds: float, stopping: Callable[[], bool]) -> None:
        ends = time.monotonic() + seconds
        while not (stopping() or self._wakeup.is_set()) and (left := ends - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, POLL_INTERVAL)):
                    await self._wakeup.wait()
        self._wakeup.clear()

    async def finish(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)


def _call_catching(call: Callable[..., T], *arguments: Any) -> tuple[T, None] | tuple[Any, Exception]:
    """Call it and return its error as a value: a future cannot raise StopIteration, and would never be done."""
    try:
        return call(*arguments), None
    except Exception as error:  # noqa: BLE001 (raised again by the caller)
        return None, error


_runtimes: weakref.WeakSet[AsyncioRuntime] = weakref.WeakSet()


def _forget_threads() -> None:
    for runtime in tuple(_runtimes):
        runtime.forget_thread()


call_in_forked_child(_forget_threads)
