"""Exceptions of listeners are caught, but those of a signal handler propagate."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from onceward.engine.events import Bus, Event
from onceward.protocol.signals import came_by_signal


class TimeIsUp(Exception):
    """What a task queue raises from its signal handler."""


def on_signal(*_: Any) -> None:
    raise TimeIsUp


class Alarm:
    def __call__(self, number: int, frame: FrameType | None) -> None:
        on_signal(number, frame)

    def method(self, number: int, frame: FrameType | None) -> None:
        on_signal(number, frame)


HANDLERS: list[Callable[..., Any]] = [on_signal, Alarm(), Alarm().method, functools.partial(on_signal, "more")]


@pytest.fixture(params=HANDLERS, ids=["function", "object", "method", "partial"], autouse=True)
def handler(request: pytest.FixtureRequest) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, request.param)
    yield
    signal.signal(signal.SIGUSR1, before)


def strike() -> None:
    signal.raise_signal(signal.SIGUSR1)


def fail() -> None:
    raise ValueError


def test_while_a_listener_runs() -> None:
    complaints: list[Exception] = []
    bus = Bus(lambda _: None, lambda _: True, lambda _, error: complaints.append(error))
    event = Event(name="acquired", key="k", scope="s")
    leave = bus.subscribe(lambda _: fail())
    bus.emit(event)
    assert [type(error) for error in complaints] == [ValueError]
    leave()
    bus.subscribe(lambda _: strike())
    with pytest.raises(TimeIsUp):
        bus.emit(event)


def test_a_handler_that_was_replaced_does_not_count_any_more() -> None:
    """After that it cannot be distinguished from any other function: this is a documented limit."""
    with pytest.raises(TimeIsUp) as caught:
        strike()
    assert came_by_signal(caught.value)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    assert not came_by_signal(caught.value)
