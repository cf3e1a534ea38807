"""A request in a lane, and the future of its answer, which wakes its task in the very turn in which that comes.

asyncio's own way is to ask the loop to wake the task in its next turn, which is half of what a wait costs; and a flight
brings the answers of many. So we take from the future how its task is woken, and do that.
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

NOBODY: list[tuple[Any, Context]] = [(None, Context())]


class PendingRequest(Struct, eq=False):
    """Whoever is cancelled while it waits for the future `stays`: the cancellation comes with the answer.

    Who waits in no such way, but by a plain `await`, has left.

    The future is one of asyncio's own and no kind of it, because tasks wait for those in the fewest steps.
    """

    request: AnyRequest
    deadline: float  # on our own clock
    future: Future[Answer]
    stays: bool = True

    def is_done(self) -> bool:
        """It has its answer, or has left."""
        return self.future.done() and not (self.stays and self.future.cancelled())

    def bring(self, answer: Answer) -> None:
        future = self._awaited()
        if not future.done():
            future.set_result(answer)

    def fail(self, error: Exception) -> None:
        future = self._awaited()
        if not future.done():
            future.set_exception(error)
            future._log_traceback = False  # noqa: SLF001 (if nobody waits, nobody is told)

    def leave(self) -> None:
        """Its time is over, and it was not sent."""
        self.fail(StoreUnavailable("other calls of this process kept the store busy for too long"))

    def _awaited(self) -> Future[Answer]:
        """Who stays goes on waiting for another one, if this one was cancelled."""
        if self.stays and self.future.cancelled():
            self.future = self.future.get_loop().create_future()
        return self.future

    async def finish_after(
        self, error: BaseException, on_cancel: Callable[[], None] | None = None
    ) -> tuple[list[Answer], BaseException]:
        """What was raised where the future was awaited: if it is a cancellation, wait on."""
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
        self.stays = False
        answer = yield from self.future
        return [answer]


def hand_over(passengers: Sequence[PendingRequest], answers: Sequence[Answer], *, now: bool = True) -> None:
    """Each gets its answer. Whoever waits for it goes on: a task `now`, unless we are in one ourselves; others soon.

    Of what a task raises, Ctrl-C and SystemExit come out here. They are for the loop: whoever brought the answers has
    nothing to do with them, and others that it brought are still to be handed over.
    """
    left = iter(zip(passengers, answers, strict=True))
    one: PendingRequest | None = None
    answer: Any = None
    waker: Any = None
    context: Context | None = None
    try:
        if now and asyncio.current_task() is None:
            # A task asks what it is woken with for a result, and then ours: one that is over will do.
            over = asyncio.get_running_loop().create_future()
            over.set_result(None)
            for one, answer in left:
                future = one.future
                waiting = future._callbacks or NOBODY  # noqa: SLF001 (all futures have them)
                waker, context = waiting[0]
                if type(waker) is BuiltinMethodType and len(waiting) == 1:
                    future.remove_done_callback(waker)  # who is woken here is not woken by the loop
                    future.set_result(answer)
                    context.run(waker, over)
                else:
                    one.bring(answer)
    except BaseException as error:  # a task has raised it, or a signal handler, here
        if one is not None:
            _wake_surely(one, answer, waker, context)
        if not isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        asyncio.get_running_loop().call_soon(_raise, error)
    finally:
        for one, answer in left:
            one.bring(answer)


def _wake_surely(one: PendingRequest, answer: Answer, waker: Any, context: Context | None) -> None:
    """After a signal, which may have struck just before its task was woken, or just after."""
    future = one.future
    is_waiting = getattr(getattr(waker, "__self__", None), "_fut_waiter", None) is future
    if is_waiting:
        future.remove_done_callback(waker)
    one.bring(answer)
    if is_waiting:
        future.get_loop().call_soon(waker, future, context=context)


def _raise(error: BaseException) -> NoReturn:
    raise error
