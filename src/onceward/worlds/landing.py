"""What a task waits for in a lane: a future that wakes it in the very turn of the loop in which its answer comes.

asyncio's own asks the loop to wake the task in its next turn, which is half of what a wait costs; and a flight brings
the answers of many. A task takes for a future whatever behaves like one. It hands over how it is woken, and we do that.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, CancelledError, InvalidStateError
from collections.abc import Callable, Generator, Iterable
from contextvars import Context
from types import BuiltinMethodType
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")

Call = Callable[[Any], object]


class Landing(Generic[T]):
    """As an `asyncio.Future`, but for `arrive`, which wakes nobody: `wake` does, all who have arrived together.

    `stays`: whoever waits for it sees to it that no cancellation reaches it.
    """

    __slots__ = (
        *("_asyncio_future_blocking", "_calls", "_context", "_error", "_loop", "_value", "_waker"),
        *("is_done", "stays"),
    )

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._waker: Call | None = None
        self._context: Context | None = None
        self._calls: list[tuple[Call, Context | None]] | None = None  # more than the one
        self._error: BaseException | None = None
        # How tasks know a future, and that it is waited for in the right way.
        self._asyncio_future_blocking = self.is_done = self.stays = False

    def done(self) -> bool:
        return self.is_done

    def cancelled(self) -> bool:
        return self.is_done and type(self._error) is CancelledError

    def cancel(self, msg: object = None) -> bool:
        if self.stays or self.is_done:
            return False
        self._error = CancelledError() if msg is None else CancelledError(msg)
        self._finish()
        return True

    def result(self) -> T:
        if not self.is_done:
            raise InvalidStateError("there is no answer yet")
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self) -> BaseException | None:
        if not self.is_done:
            raise InvalidStateError("there is no answer yet")
        if type(self._error) is CancelledError:
            raise self._error
        return self._error

    def add_done_callback(self, call: Call, *, context: Context | None = None) -> None:
        if self.is_done:
            self._loop.call_soon(call, self, context=context)
        elif self._waker is None:
            self._waker, self._context = call, context
        else:
            self._calls = [*(self._calls or ()), (call, context)]

    def remove_done_callback(self, call: Call) -> int:
        """How many were removed."""
        before = [] if self._waker is None else [(self._waker, self._context), *(self._calls or ())]
        left = [one for one in before if one[0] != call]
        (self._waker, self._context), self._calls = (left[0], left[1:]) if left else ((None, None), None)
        return len(before) - len(left)

    def arrive(self, value: T) -> None:
        """Has its answer, and somebody is about to `wake` those who wait for it."""
        self._value: T = value
        self.is_done = True

    def set_result(self, value: T) -> None:
        self.arrive(value)
        self._wake_soon()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._finish()

    def _finish(self) -> None:
        self.is_done = True
        self._wake_soon()

    def _wake_soon(self) -> None:
        """In the loop's next turn."""
        waker, calls, self._waker, self._calls = self._waker, self._calls, None, None
        if waker is not None:
            self._loop.call_soon(waker, self, context=self._context)
        for call, context in calls or ():
            self._loop.call_soon(call, self, context=context)

    def call_soon(self, call: Callable[..., object], *arguments: object) -> None:
        """In its loop, from wherever the collector runs. RuntimeError: that is closed."""
        self._loop.call_soon_threadsafe(call, *arguments)

    def wake_surely(self) -> None:
        """After a signal, which may have struck just before it was woken, or just after."""
        task = getattr(self._waker, "__self__", None)
        if self.is_done and (not isinstance(task, asyncio.Task) or task._fut_waiter is self):  # type: ignore[attr-defined]  # noqa: SLF001 (of tasks)
            self._wake_soon()

    def _make_cancelled_error(self) -> BaseException:
        """How `asyncio.gather` asks for it."""
        return self._error or CancelledError()

    def __await__(self) -> Generator[Any, None, T]:
        if not self.is_done:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    __iter__ = __await__  # as futures have it, for `yield from`


def wake(landed: Iterable[Landing[Any]], *, now: bool = True) -> None:
    """Those who wait for these go on: their tasks `now`, unless we are in one ourselves; all others soon.

    Of what a task raises, Ctrl-C and SystemExit come out here. They are for the loop: whoever brought the answers has
    nothing to do with them, and others that it brought are still to be handed over.
    """
    waiting = iter(landed)
    one: Landing[Any] | None = None
    try:
        if now and asyncio.current_task() is None:
            # A task asks what it is woken with for a result, for which one of asyncio's own is quicker to answer; then
            # whoever waits in that task asks ours.
            over = asyncio.get_running_loop().create_future()
            over.set_result(None)
            for one in waiting:
                waker, context = one._waker, one._context  # noqa: SLF001 (ours)
                if type(waker) is BuiltinMethodType and context is not None and one._calls is None:  # noqa: SLF001 (ours)
                    context.run(waker, over)
                    one._waker = None  # noqa: SLF001 (ours; not before: a signal may strike in between)
                else:
                    one._wake_soon()  # noqa: SLF001 (ours)
    except (KeyboardInterrupt, SystemExit) as error:
        if one is not None:  # a task has raised it, or a signal handler, here
            one.wake_surely()
        asyncio.get_running_loop().call_soon(_raise, error)
    finally:
        for one in waiting:
            one._wake_soon()  # noqa: SLF001 (ours)


def _raise(error: BaseException) -> NoReturn:
    raise error
