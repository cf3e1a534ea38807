"""A signal handler that raises in the lane's own code, wherever it strikes: everybody still gets an answer."""

from __future__ import annotations

import asyncio
import sys
from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest

from onceward.model.record import Answer
from onceward.ports import AnyRequest
from onceward.worlds.loop_lane import LoopLane, Runway
from tests.moved_time import TOO_LONG
from tests.unit.lane_calls import answer_to, request
from tests.unit.loop_lane_calls import ask

NAMES = ("a", "b", "c", "d")
STRUCK = {function.__code__ for function in (Runway._fly, Runway._fill, Runway._seats, Runway._chosen, Runway._serve)}


async def send(requests: Sequence[AnyRequest], _timeout: float) -> list[Answer]:
    await asyncio.get_running_loop().create_task(asyncio.sleep(0))  # a task of the store's own
    return [answer_to(one) for one in requests]


def striking(step: int) -> tuple[Callable[..., Any], list[int]]:
    """Raises once, at that line of the lane's own; and what it has counted."""
    lines = [0]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "call" and frame.f_code not in STRUCK:
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == step:
                raise KeyboardInterrupt
        return trace

    return trace, lines


def run(loop: AbstractEventLoop, tasks: list[Task[Answer]]) -> list[Answer | None]:
    """None where it was struck itself, in the call with which it came."""
    _, late = loop.run_until_complete(asyncio.wait(tasks, timeout=TOO_LONG))
    assert not late
    return [None if isinstance(one.exception(), KeyboardInterrupt) else one.result() for one in tasks]


@pytest.mark.fault("F27")
@pytest.mark.parametrize(("flights", "crowd", "names"), [(1, 1, NAMES), (3, 1, NAMES), (2, 2, NAMES), (1, 1, "aabb")])
def test_whoever_waits_is_answered_wherever_a_signal_strikes(flights: int, crowd: int, names: Sequence[str]) -> None:
    step = 0
    while True:
        step += 1
        lane, loop = LoopLane(send, flights, crowd), asyncio.new_event_loop()
        trace, lines = striking(step)
        tasks = [loop.create_task(ask(lane, request(name))) for name in names]
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            loop.run_until_complete(asyncio.wait(tasks, timeout=TOO_LONG))
        except KeyboardInterrupt:
            assert lines[0] == step
        finally:
            sys.settrace(before)
        answers = run(loop, tasks)
        assert answers.count(None) <= 1, f"step {step}"
        for name, answer in zip(names, answers, strict=True):
            assert answer in (None, answer_to(request(name))), f"step {step}"
        loop.close()
        if lines[0] < step:
            break
    assert step > 20
