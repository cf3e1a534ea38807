"""A signal handler that raises in the lane's own code, wherever it strikes: everybody still gets an answer."""

from __future__ import annotations

import asyncio
import gc
import sys
from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from types import CodeType, FrameType
from typing import Any

import pytest

from onceward.protocol.requests import Answer, AnyRequest
from onceward.runtime.async_batcher import AsyncBatcher, LoopQueue
from onceward.runtime.callback_steps import CallbackTask
from onceward.runtime.pending_request import deliver_results
from tests.moved_time import TOO_LONG
from tests.unit.async_batcher_calls import ask
from tests.unit.batcher_calls import answer_to, request

STALLED = 0.2  # seconds after which what was lost is looked for
NAMES = ("a", "b", "c", "d")
FLYING = (
    LoopQueue._send_batches,
    LoopQueue._fill_batch,
    LoopQueue._batch_limit,
    LoopQueue._select,
    LoopQueue._send_each,
    LoopQueue._send_batch,
    LoopQueue._finish_batch,
)
STRUCK = {function.__code__ for function in (*FLYING, LoopQueue._schedule_flush, CallbackTask.step, deliver_results)}
ASKING = {
    function.__code__
    for function in (AsyncBatcher.ask, LoopQueue.on_new_request, LoopQueue._flush, LoopQueue.set_alarm)
}


class Alarm(Exception):
    """What a handler of SIGALRM may raise. The loop tells of it and goes on."""


async def send(requests: Sequence[AnyRequest], _timeout: float) -> list[Answer]:
    await asyncio.get_running_loop().create_task(asyncio.sleep(0))  # a task of the store's own
    return [answer_to(one) for one in requests]


def striking(
    step: int, raised: type[BaseException], struck: AbstractSet[CodeType] = STRUCK
) -> tuple[Callable[..., Any], list[int]]:
    """Raises once, at that line of the lane's own; and what it has counted."""
    lines = [0]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "call" and frame.f_code not in struck:
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == step:
                raise raised
        return trace

    return trace, lines


def run(loop: AbstractEventLoop, tasks: list[Task[Answer]]) -> list[Answer | None]:
    """None where it was struck itself, in the call with which it came."""
    try:
        _, late = loop.run_until_complete(asyncio.wait(tasks, timeout=TOO_LONG))
    except KeyboardInterrupt:  # handed over to the loop
        _, late = loop.run_until_complete(asyncio.wait(tasks, timeout=TOO_LONG))
    assert not late
    return [None if isinstance(one.exception(), KeyboardInterrupt | Alarm) else one.result() for one in tasks]


@pytest.mark.fault("F27")
@pytest.mark.filterwarnings("ignore:coroutine .*_send_batches.* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("raised", [KeyboardInterrupt, Alarm])
@pytest.mark.parametrize(("flights", "crowd", "names"), [(1, 1, NAMES), (3, 1, NAMES), (2, 2, NAMES), (1, 1, "aabb")])
def test_whoever_waits_is_answered_wherever_a_signal_strikes_and_so_is_who_comes_after(
    flights: int, crowd: int, names: Sequence[str], raised: type[BaseException]
) -> None:
    step = 0
    while True:
        step += 1
        batcher, loop = AsyncBatcher(send, flights, crowd), asyncio.new_event_loop()
        loop.set_exception_handler(lambda _loop, _context: None)
        trace, lines = striking(step, raised)
        tasks = [loop.create_task(ask(batcher, request(name))) for name in names]
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            loop.run_until_complete(asyncio.wait(tasks, timeout=STALLED))
        except (KeyboardInterrupt, Alarm):
            assert lines[0] == step
        finally:
            sys.settrace(before)
        gc.collect()  # where the call of a step was lost, the flight is garbage
        answers = run(loop, tasks)
        assert answers.count(None) <= 1, f"step {step}"
        for name, answer in zip(names, answers, strict=True):
            assert answer in (None, answer_to(request(name))), f"step {step}"
        later = [loop.create_task(ask(batcher, request(name))) for name in ("y", "z")]
        assert run(loop, later) == [answer_to(request("y")), answer_to(request("z"))], f"step {step}"
        loop.close()
        if lines[0] < step:
            break
    assert step > 20


@pytest.mark.fault("F27")
@pytest.mark.filterwarnings("ignore:coroutine .*_send_batches.* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("others", [0, 1, 4])
@pytest.mark.parametrize(("flights", "crowd"), [(1, 1), (3, 1), (2, 2)])
def test_what_was_not_sent_when_a_signal_struck_in_its_call_is_not_sent_behind_its_back(
    flights: int, crowd: int, others: int
) -> None:
    """Whoever asked sees what came of it, gives that back and is gone: a claim that flew later would be nobody's."""
    sent: list[bytes] = []

    async def noted(requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        sent.extend(one.id for one in requests)
        return await send(requests, timeout)

    async def struck(batcher: AsyncBatcher, trace: Callable[..., Any]) -> bool:
        waiting = [asyncio.ensure_future(ask(batcher, request(name))) for name in NAMES[:others]]
        await asyncio.sleep(0)
        mine, before = request("mine"), sys.gettrace()
        sys.settrace(trace)
        try:
            batcher.ask(mine, 30.0)
        except Alarm:
            sys.settrace(before)
        else:
            return False
        finally:
            sys.settrace(before)
        known = sent.count(mine.id)
        answers = await asyncio.wait_for(asyncio.gather(*waiting, ask(batcher, request("z"))), TOO_LONG)
        assert len(answers) == others + 1
        assert sent.count(mine.id) == known
        return True

    async def main() -> int:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        step = 1
        while await struck(AsyncBatcher(noted, flights, crowd), striking(step, Alarm, ASKING | STRUCK)[0]):
            step += 1
        return step

    assert asyncio.run(main()) > 5
