"""Run a coroutine to its end within the task that awaits it, even if that task is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ShieldedCall(Generic[T]):
    """Awaiting it returns the value and the cancellation that came meanwhile, which the caller has to raise.

    It works like `asyncio.shield`, but without a new task: it waits for the coroutine's futures itself, through a
    stand-in future that may be cancelled instead of them. `on_cancel` is called at the first cancellation.
    """

    __slots__ = ("_cancelled", "_on_cancel", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], on_cancel: Callable[[], None] | None) -> None:
        self._work = work
        self._on_cancel = on_cancel
        self._cancelled: asyncio.CancelledError | None = None

    def __await__(self) -> Generator[Any, None, tuple[T, BaseException | None]]:
        try:
            while True:
                wanted = self._work.send(None)
                if wanted is None:
                    yield from self._turn()
                else:
                    yield from self._wait(wanted)
        except StopIteration as done:
            return done.value, self._cancelled
        except Exception as error:
            if self._cancelled is not None:
                raise self._cancelled from error
            raise
        finally:
            self._work.close()

    def _turn(self) -> Generator[Any, None, None]:
        """Yield to other tasks."""
        try:
            yield
        except asyncio.CancelledError as error:
            self._note(error)

    def _wait(self, wanted: asyncio.Future[Any]) -> Generator[Any, None, None]:
        """Wait until the future is done. The coroutine reads its result itself."""
        wanted._asyncio_future_blocking = False  # the task does not wait for it  # noqa: SLF001 (as tasks do)
        while not wanted.done():
            stand_in: asyncio.Future[None] = wanted.get_loop().create_future()

            def wake(_: object, stand_in: asyncio.Future[None] = stand_in) -> None:
                if not stand_in.done():
                    stand_in.set_result(None)

            wanted.add_done_callback(wake)
            try:
                yield from stand_in
            except asyncio.CancelledError as error:
                self._note(error)

    def _note(self, error: asyncio.CancelledError) -> None:
        if self._cancelled is None and self._on_cancel is not None:
            self._on_cancel()
        self._cancelled = error
