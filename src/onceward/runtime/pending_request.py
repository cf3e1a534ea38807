"""A request in an async batcher, and the future of its answer."""

from __future__ import annotations

from asyncio import CancelledError, Future
from collections.abc import Callable, Generator
from typing import Any

from msgspec import Struct

from onceward.errors import StoreUnavailable
from onceward.protocol.requests import Answer, AnyRequest

from .next_batch import BUSY_TOO_LONG


class PendingRequest(Struct, eq=False):
    """A request and the future of its answer.

    A flow that awaits `future` and is cancelled `keeps_waiting`: it gets the cancellation together with the answer. A
    caller that awaits the request itself stops waiting when it is cancelled.
    """

    request: AnyRequest
    deadline: float  # on our own clock
    future: Future[Answer]
    keeps_waiting: bool = True
    alone: bool = False
    """Send it without others, because a batch that contained it failed."""

    def is_done(self) -> bool:
        """Return whether it has an answer, or its caller has gone."""
        return self.future.done() and not (self.keeps_waiting and self.future.cancelled())

    def resolve(self, answer: Answer) -> None:
        future = self.future
        if future.done():
            future = self._awaited()
        if not future.done():
            future.set_result(answer)

    def fail(self, error: Exception) -> None:
        future = self._awaited()
        if not future.done():
            future.set_exception(error)
            future.exception()  # counts as retrieved: without a waiting caller, there is nothing to report

    def leave(self) -> None:
        """Fail the request: its deadline has passed, and it was not sent."""
        self.fail(StoreUnavailable(BUSY_TOO_LONG))

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
