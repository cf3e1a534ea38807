"""An application that is looked at whenever it waits for something, by a plain call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any


class SuspensionHook:
    """Awaits as the application itself would; `look` is called before each of its waits, and not if it never waits.

    So it costs nothing to know whether an application is still at work: no task, no turn of the loop.
    """

    __slots__ = ("_app", "_look")

    def __init__(self, app: Awaitable[object], look: Callable[[], None]) -> None:
        self._app = app
        self._look = look

    def __await__(self) -> Generator[Any, Any, None]:
        steps: Any = self._app.__await__()
        error: BaseException | None = None
        while True:
            try:
                wanted = steps.send(None) if error is None else steps.throw(error)
            except StopIteration:
                return
            self._look()
            try:
                yield wanted
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as thrown:  # noqa: BLE001 (all of it is the application's)
                error = thrown
            else:
                error = None
