"""Call a hook whenever an awaitable suspends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any


class SuspensionHook:
    """Await the application, and call `on_suspend` before each suspension.

    This detects at no cost whether the application has more to do: it needs neither a task nor a loop iteration.
    """

    __slots__ = ("_app", "_on_suspend")

    def __init__(self, app: Awaitable[object], on_suspend: Callable[[], None]) -> None:
        self._app = app
        self._on_suspend = on_suspend

    def __await__(self) -> Generator[Any, Any, None]:
        steps: Any = self._app.__await__()
        error: BaseException | None = None
        while True:
            try:
                wanted = steps.send(None) if error is None else steps.throw(error)
            except StopIteration:
                return
            self._on_suspend()
            try:
                yield wanted
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as thrown:  # noqa: BLE001 (passed on to the application)
                error = thrown
            else:
                error = None
