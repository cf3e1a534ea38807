"""A signal handler raises at any line of the batcher's own code: every caller still gets an answer."""

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

STALLED = 0.2  # seconds after which lost requests are looked for
NAMES = ("a", "b", "c", "d")
SENDING = (
    LoopQueue._send_batches,
    LoopQueue._fill_batch,
    LoopQueue._batch_limit,
    LoopQueue._select,
    LoopQueue._send_each,
    LoopQueue._send_batch,
    LoopQueue._finish_batch,
)
STRUCK = {function.__code__ for function in (*SENDING, LoopQueue._schedule_flush, CallbackTask.step, deliver_results)}
ASKING = {
    function.__code__
    for function in (AsyncBatcher.ask, LoopQueue.on_new_request, LoopQueue._flush, LoopQueue.set_alarm)
}


class Alarm(Exception):
    """What a handler of SIGALRM may raise. The loop reports it and continues."""


async def send(requests: Sequence[AnyRequest], _timeout: float) -> list[Answer]:
    await asyncio.get_running_loop().create_task(asyncio.sleep(0))  # a task of the store's own
    return [answer_to(one) for one in requests]


def striking(
    step: int, raised: type[BaseException], struck: AbstractSet[CodeType] = STRUCK
) -> tuple[Callable[..., Any], list[int]]:
    """Return a trace function that raises once, at that line of the batcher's own code, and its line counter."""
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
    """Return the answers; None for a task that the signal interrupted in its own call."""
    try:
        _, late = loop.run_until_complete(asyncio.wait(tasks, timeout=TOO_LONG))
    except KeyboardInterrupt:  # handed over to the loop
        _, late = loop.run_until_complete(asyncio.wait(tasks, timeout=TOO_LONG))
    assert not late
    return [None if isinstance(one.exception(), KeyboardInterrupt | Alarm) else one.result() for one in tasks]


@pytest.mark.fault("F27")
@pytest.mark.filterwarnings("ignore:coroutine .*_send_batches.* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("raised", [KeyboardInterrupt, Alarm])
@pytest.mark.parametrize(
    ("max_in_flight", "min_batch", "names"), [(1, 1, NAMES), (3, 1, NAMES), (2, 2, NAMES), (1, 1, "aabb")]
)
def test_waiting_and_later_callers_get_answers_wherever_a_signal_interrupts(
    max_in_flight: int, min_batch: int, names: Sequence[str], raised: type[BaseException]
) -> None:
    step = 0
    while True:
        step += 1
        batcher, loop = AsyncBatcher(send, max_in_flight, min_batch), asyncio.new_event_loop()
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
        gc.collect()  # if the call of a step was lost, the batch is garbage
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
@pytest.mark.parametrize(("max_in_flight", "min_batch"), [(1, 1), (3, 1), (2, 2)])
def test_a_request_not_yet_sent_when_a_signal_interrupts_its_call_is_never_sent(
    max_in_flight: int, min_batch: int, others: int
) -> None:
    """The caller cleans up after the exception and leaves: a claim that is sent later would have no owner."""
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
        while await struck(AsyncBatcher(noted, max_in_flight, min_batch), striking(step, Alarm, ASKING | STRUCK)[0]):
            step += 1
        return step

    assert asyncio.run(main()) > 5
