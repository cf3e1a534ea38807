"""Interrupt Onceward's own code at any step, and the kinds of calls that an interrupt may hit."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import onceward
from onceward import Once
from onceward.protocol.ports import Store
from tests.clients import Backend
from tests.collector import resting

HOME = Path(onceward.__file__).parent
OURS = {str(path) for folder in ("engine", "runtime") for path in (HOME / folder).glob("*.py")} | {
    str(HOME / "operations" / "function.py")
}
LAST = ("__del__",)
"""What Python calls when an object is finalized. Exceptions raised there do not propagate."""


class Alarm(BaseException):
    """What a signal handler raises."""


class AlarmError(Exception):
    """The same, but `except Exception` catches it."""


def interrupted_at(
    step: int,
    call: Callable[[], Any],
    alarm: type[BaseException],
    behind: str = "",
    ours: Collection[str] = OURS,
    *,
    ends: bool = False,
) -> bool:
    """Call it, and raise at that step of Onceward's code, as a signal handler would. Return whether it got that far.

    `behind`: count the steps from the first line of that function on. `ends`: count steps in finalizers, too, although
    no exception propagates from there. The garbage collector is off: it would finalize objects of other tests.
    """
    steps = -1 if behind else 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        if frame.f_code.co_filename not in ours or frame.f_code.co_name in LAST:
            return None
        if event == "call" and not ends and is_last(frame):
            return None
        if event == "line" and steps < 0:
            steps += frame.f_code.co_name == behind
        elif event in ("call", "line") and steps >= 0:
            steps += 1
            if steps == step:
                raise alarm
        return trace

    before = sys.gettrace()
    with resting():
        sys.settrace(trace)
        try:
            call()
        except alarm:
            return True
        finally:
            sys.settrace(before)
    return steps >= step


def is_last(frame: FrameType | None) -> bool:
    """Return whether it is called because an object is finalized."""
    while frame is not None and frame.f_code.co_name not in LAST:
        frame = frame.f_back
    return frame is not None


@pytest.fixture
def ignore_unawaited() -> Iterator[None]:
    """Ignore the warning of a coroutine that was interrupted at its first step and is never awaited."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.open()


def block(once: Once, key: str, work: Callable[[], None]) -> None:
    with once.claim(key):
        work()


def in_bulk(once: Once, key: str, work: Callable[[], None]) -> None:
    once.map(lambda _item: work(), [key, key + " and more"], key="{_item}", name="shared")


WAYS: dict[str, Callable[[Once, str, Callable[[], None]], Any]] = {
    "run": lambda once, key, work: once.run(key, work),
    "block": block,
    "map": in_bulk,
}
