"""Make pieces as small as a test wants them, so that small values are cut like large ones."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from onceward.keys import canonical, pace, runs
from onceward.results import frames, writer
from onceward.results import result_type as results


@contextlib.contextmanager
def pieces_of(light: int) -> Iterator[None]:
    """Treat only values up to this weight as light."""
    with contextlib.ExitStack() as stack:
        for module in (canonical, frames, results, runs):
            stack.enter_context(mock.patch.object(module, "LIGHT", light))
        for module, name in (
            (frames, "RAW_FROM"),
            (writer, "RAW_FROM"),
            (frames, "_AT_ONCE"),
            (runs, "_SORTED_AT_ONCE"),
        ):
            stack.enter_context(mock.patch.object(module, name, light))
        for name in ("_SEARCHED_AT_ONCE", "_COPIED_AT_ONCE"):
            stack.enter_context(mock.patch.object(canonical, name, light))
        stack.enter_context(mock.patch.dict(writer.Writer.__init__.__kwdefaults__, light=light))
        yield


def beside_others(call: Callable[..., Any], *arguments: Any, pause: pace.Pause = pace.go_on) -> Any:
    """Call it as the asyncio runtime does, with pauses for other tasks."""

    def sharing() -> Any:
        pace.share(pause)
        return call(*arguments)

    return contextvars.copy_context().run(sharing)
