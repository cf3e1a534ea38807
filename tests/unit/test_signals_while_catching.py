"""Exceptions of values, ciphers and listeners are caught, but those of a signal handler propagate."""

from __future__ import annotations

import dataclasses
import functools
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from onceward import Once, RecordState
from onceward.engine.events import Bus, Event
from onceward.protocol.signals import came_by_signal
from onceward.results.codec import Codec
from onceward.results.result_type import ResultType
from onceward.stores import MemoryStore

RECORD = bytes(32)


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


@dataclasses.dataclass
class Reading:
    """A value whose attribute is read while it is encoded."""

    when_read: Callable[[], None]

    def __getattribute__(self, name: str) -> Any:
        if name == "when_read":
            object.__getattribute__(self, name)()
            return 1
        return object.__getattribute__(self, name)


class Sealing:
    digest_key = bytes(32)

    def __init__(self, when_used: Callable[[], None]) -> None:
        self._when_used = when_used

    def seal(self, plain: bytes, bound_to: bytes) -> bytes:
        self._when_used()
        return plain

    def open(self, sealed: bytes, bound_to: bytes) -> bytes:
        self._when_used()
        return sealed


def test_while_a_value_is_encoded() -> None:
    codec = Codec(ResultType(Reading))
    assert "reading it raised ValueError" in codec.encode(Reading(fail), RECORD).reason
    with pytest.raises(TimeIsUp):
        codec.encode(Reading(strike), RECORD)


def test_while_a_cipher_is_used() -> None:
    encoded = Codec(ResultType(), cipher=Sealing(lambda: None)).encode([1], RECORD)
    assert encoded.data is not None
    assert "raised ValueError" in Codec(ResultType(), cipher=Sealing(fail)).encode([1], RECORD).reason
    striking = Codec(ResultType(), cipher=Sealing(strike))
    with pytest.raises(TimeIsUp):
        striking.encode([1], RECORD)
    with pytest.raises(TimeIsUp):
        striking.decode(encoded.data, RECORD)


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


@pytest.mark.fault("F3")
def test_the_result_is_recorded_all_the_same() -> None:
    """The result is encoded again before the exception propagates."""
    struck: list[bool] = []

    def strike_once() -> None:
        if not struck:
            struck.append(True)
            strike()

    once = Once(MemoryStore())

    def read() -> Reading:
        return Reading(strike_once)

    with pytest.raises(TimeIsUp):
        once.run("k", read)
    entry = once.read("k")
    assert entry is not None
    assert entry.record.state is RecordState.COMPLETED


def test_a_handler_that_was_replaced_does_not_count_any_more() -> None:
    """After that it cannot be distinguished from any other function: this is a documented limit."""
    with pytest.raises(TimeIsUp) as caught:
        strike()
    assert came_by_signal(caught.value)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    assert not came_by_signal(caught.value)
