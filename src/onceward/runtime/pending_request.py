"""A request in an async batcher, and the future of its answer, which wakes its task in the same loop iteration.

asyncio itself wakes the task in the next iteration, which is half of the cost of a wait, and a batch has many answers.
So we take the wake-up callback from the future and call it directly.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, Future
from collections.abc import Callable, Generator, Sequence
from contextvars import Context
from types import BuiltinMethodType
from typing import Any, NoReturn

from msgspec import Struct

from onceward.errors import StoreUnavailable
from onceward.protocol.requests import Answer, AnyRequest

NO_CALLBACKS: list[tuple[Any, Context]] = [(None, Context())]


class PendingRequest(Struct, eq=False):
    """A request and the future of its answer.

    A flow that awaits `future` and is cancelled `keeps_waiting`: it gets the cancellation together with the answer. A
    caller that awaits the request itself stops waiting when it is cancelled.

    The future is a plain asyncio future, not a subclass, because tasks await those fastest.
    """

    request: AnyRequest
    deadline: float  # on our own clock
    future: Future[Answer]
    keeps_waiting: bool = True

    def is_done(self) -> bool:
        """Return whether it has an answer, or its caller has gone."""
        return self.future.done() and not (self.keeps_waiting and self.future.cancelled())

    def resolve(self, answer: Answer) -> None:
        future = self._awaited()
        if not future.done():
            future.set_result(answer)

    def fail(self, error: Exception) -> None:
        future = self._awaited()
        if not future.done():
            future.set_exception(error)
            future._log_traceback = False  # noqa: SLF001 (without a waiting caller, there is nothing to report)

    def leave(self) -> None:
        """Fail the request: its deadline has passed, and it was not sent."""
        self.fail(StoreUnavailable("other calls of this process kept the store busy for too long"))

    def _awaited(self) -> Future[Answer]:
        """Return the future to resolve: a new one, if a caller that keeps waiting was cancelled."""
        if self.keeps_waiting and self.future.cancelled():
            self.future = self.future.get_loop().create_future()
        return self.future

    async def finish_after(
        self, error: BaseException, on_cancel: Callable[[], None] | None = None
    ) -> tuple[list[Answer], BaseException]:
        """Handle what awaiting the future raised: after a cancellation, keep waiting."""
        if type(error) is not CancelledError:
            raise error
        if on_cancel is not None:
            on_cancel()
        while True:
            future = self._awaited()
            try:
                return [await future], error
            except CancelledError as again:
                error = again
            except Exception as trouble:
                raise error from trouble

    def __await__(self) -> Generator[Any, None, list[Answer]]:
        self.keeps_waiting = False
        answer = yield from self.future
        return [answer]


def deliver_results(requests: Sequence[PendingRequest], answers: Sequence[Answer], *, now: bool = True) -> None:
    """Give each request its answer. With `now`, waiting tasks continue immediately, unless this code runs in a task.

    KeyboardInterrupt and SystemExit that a task raises appear here. They are passed to the loop: they do not concern
    the batch, and the other answers must still be delivered.
    """
    left = iter(zip(requests, answers, strict=True))
    one: PendingRequest | None = None
    answer: Any = None
    waker: Any = None
    context: Context | None = None
    try:
        if now and asyncio.current_task() is None:
            # A task first asks the future that it is woken with for a result, then our future: any done future works.
            done = asyncio.get_running_loop().create_future()
            done.set_result(None)
            for one, answer in left:
                future = one.future
                waiting = future._callbacks or NO_CALLBACKS  # noqa: SLF001 (all futures have them)
                waker, context = waiting[0]
                if type(waker) is BuiltinMethodType and len(waiting) == 1:
                    future.remove_done_callback(waker)  # woken here, not by the loop
                    future.set_result(answer)
                    context.run(waker, done)
                else:
                    one.resolve(answer)
    except BaseException as error:  # raised by a task, or by a signal handler here
        if one is not None:
            _wake_after_interrupt(one, answer, waker, context)
        if not isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        asyncio.get_running_loop().call_soon(_raise, error)
    finally:
        for one, answer in left:
            one.resolve(answer)


def _wake_after_interrupt(one: PendingRequest, answer: Answer, waker: Any, context: Context | None) -> None:
    """Wake the task after an interrupt that may have come just before or just after it was woken."""
    future = one.future
    is_waiting = getattr(getattr(waker, "__self__", None), "_fut_waiter", None) is future
    if is_waiting:
        future.remove_done_callback(waker)
    one.resolve(answer)
    if is_waiting:
        future.get_loop().call_soon(waker, future, context=context)


def _raise(error: BaseException) -> NoReturn:
    raise error
