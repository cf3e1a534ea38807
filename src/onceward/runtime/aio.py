"""The world of an event loop. Only the async face imports this."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident
from types import CoroutineType
from typing import Any, TypeVar

from onceward.keys.pace import share
from onceward.protocol.requests import Answer
from onceward.protocol.runtime import Send

from .async_batcher import AsyncBatcher, here
from .nonce import nonce
from .pending_request import PendingRequest
from .shielded import ShieldedCall
from .threads import GLANCE

T = TypeVar("T")


class AsyncGate:
    """Ends a task's wait early, from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def open(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    async def wait(self, seconds: float) -> None:
        alarm = self._loop.call_later(seconds, self._event.set)  # not `asyncio.timeout`, which asks for a task
        try:
            await self._event.wait()
        finally:
            alarm.cancel()
            self._event.clear()


class TaskCanceller:
    """Cancels the task that made it. A cancellation by anybody else is left to them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._others = self._task.cancelling() if self._task else 0
        self._struck = self._over = False

    def __call__(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._strike)
        except RuntimeError:  # the loop is closed: nothing runs there any more
            return

    def _strike(self) -> None:
        if self._task is not None and not self._over:
            self._struck = self._task.cancel()

    def work_ended(self, error: BaseException | None) -> bool:
        self._over = True
        if self._task is None or not self._struck:
            return False
        self._struck = False
        return self._task.uncancel() <= self._others and isinstance(error, asyncio.CancelledError)


class AsyncioRuntime:
    """The World of `AsyncOnce`. Blocking calls of one store go to one thread of its own, in order."""

    supports_cancellation = True
    shielded_type = PendingRequest

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._seen: Callable[[], asyncio.AbstractEventLoop | None] | None = None  # the loop that ran here last
        _worlds.add(self)

    def check(self) -> None:
        seen = self._seen
        loop: Any = None if seen is None else seen()
        if loop is not None and loop._thread_id == get_ident():  # noqa: SLF001 (as in LoopLane)
            return
        loop = here()
        self._seen = weakref.ref(loop) if hasattr(loop, "_thread_id") else None

    monotonic = staticmethod(time.monotonic)

    def jitter(self) -> float:
        return random.random()  # noqa: S311 (spreads waits, guards nothing)

    nonce = staticmethod(nonce)

    def canceller(self) -> TaskCanceller:
        return TaskCanceller()

    def gate(self) -> AsyncGate:
        return AsyncGate()

    def batcher(self, send: Send, *, max_in_flight: int = 1, min_batch: int = 1) -> AsyncBatcher:
        return AsyncBatcher(send, max_in_flight, min_batch)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait_for_socket(self, socket: int, *, writing: bool, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[bool] = loop.create_future()
        loop.add_reader(socket, _tell, told, 1)
        if writing:
            loop.add_writer(socket, _tell, told, 1)
        alarm = loop.call_later(max(seconds, 0), _tell, told, 0)
        try:
            return await told
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
        value, error = await asyncio.to_thread(_caught, call, *arguments)
        if error is not None:
            raise error
        return value

    def shield(
        self, work: Awaitable[T], on_cancel: Callable[[], None] | None = None
    ) -> Awaitable[tuple[T, BaseException | None]]:
        asked: Any = work
        if type(asked) is PendingRequest:
            return self._stay(asked, on_cancel)  # type: ignore[return-value]  # what it gives is what it is awaited for
        return ShieldedCall(work, on_cancel) if type(work) is CoroutineType else self._finish(work, on_cancel)

    async def _stay(
        self, passenger: PendingRequest, on_cancel: Callable[[], None] | None
    ) -> tuple[list[Answer], BaseException | None]:
        try:
            return [await passenger.future], None
        except BaseException as error:  # noqa: BLE001 (raised again, unless it is a cancellation)
            return await passenger.finish_after(error, on_cancel)

    async def _finish(self, work: Awaitable[T], on_cancel: Callable[[], None] | None) -> tuple[T, BaseException | None]:
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
        """After a fork: the parent's thread does not exist here, and its loop does not run."""
        self._thread = self._seen = None

    def close(self) -> None:
        """End the store's thread once it has nothing left to do."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None


def shielded(inner: asyncio.Future[T]) -> asyncio.Future[T]:
    """What waits for it without being able to cancel it: as `asyncio.shield`, in half the steps."""
    outer: asyncio.Future[T] = inner.get_loop().create_future()

    def tell(inner: asyncio.Future[T]) -> None:
        if inner.cancelled():
            outer.cancel()
            return
        error = inner.exception()
        if outer.done():  # nobody waits any more
            return
        if error is None:
            outer.set_result(inner.result())
        else:
            outer.set_exception(error)

    inner.add_done_callback(tell)
    return outer


def _tell(told: asyncio.Future[bool], sockets: int) -> None:
    if not told.done():
        told.set_result(sockets > 0)


class AsyncWorkerPool:
    """Runs of schedules, each in a task of its own."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._bell = asyncio.Event()

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def wake(self) -> None:
        self._bell.set()

    async def sleep(self, seconds: float, stopping: Callable[[], bool]) -> None:
        ends = time.monotonic() + seconds
        while not (stopping() or self._bell.is_set()) and (left := ends - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, GLANCE)):
                    await self._bell.wait()
        self._bell.clear()

    async def finish(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)


class YieldPoint:
    """A pause, if the last is long enough ago: others, such as the loop's thread, then get the interpreter."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due = time.monotonic() + _BETWEEN_PAUSES

    def __call__(self) -> None:
        if time.monotonic() >= self._due:
            time.sleep(_PAUSE)
            self._due = time.monotonic() + _BETWEEN_PAUSES


_BETWEEN_PAUSES = 0.001
_PAUSE = 0.000_05  # not 0: who waits has to wake up before we want it back


def _caught(call: Callable[..., T], *arguments: Any) -> tuple[T, None] | tuple[Any, Exception]:
    """What it raised as a value: a future refuses StopIteration, and would never be done."""
    share(YieldPoint())  # in the context of this call only, which `to_thread` made for it
    try:
        return call(*arguments), None
    except Exception as error:  # noqa: BLE001 (raised again by whoever waits)
        return None, error


_worlds: weakref.WeakSet[AsyncioRuntime] = weakref.WeakSet()


def _forget_threads() -> None:
    for runtime in tuple(_worlds):
        runtime.forget_thread()


os.register_at_fork(after_in_child=_forget_threads)
