"""Races between processes. Child processes import the conformance class by name, and open the directory themselves."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Coroutine, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from onceward.protocol.requests import Verdict

from .factory import StoreFactory, check, run_check
from .harness import SHORT_LEASE, TIMEOUT, Caller, Harness, claim_request, expect
from .races import PAUSE, key_orders
from .runtimes import DEADLOCK_TIMEOUT, RUNTIME_KINDS

CHILDREN = 3
"""More than two, so that two losers can also race; not more, because each child starts an interpreter."""

TIMES = 8
KEYS = [f"key {number}" for number in range(12)]


class ProcessChecks(StoreFactory):
    """Several processes on one directory, with the wall clock."""

    @check(mission=("B2", "C2"), rival=(18,), fault=("F39", "F40"), needs=("shared",))
    async def test_processes_never_own_a_key_at_the_same_time(self, harness: Harness) -> None:
        harness.use_wall_clock()
        parent = await harness.caller()
        lapsed = [await parent.acquire(f"lapsed {key}", lease=SHORT_LEASE) for key in KEYS]
        await harness.elapse()
        (harness.directory / "counter").write_text("0")
        reports = spawn(self, harness, claim_in_child)
        assert int((harness.directory / "counter").read_text()) == CHILDREN * TIMES, "the counter lost an increment"
        for name in ("fresh", "lapsed"):
            won = sorted(key for report in reports for key in report[name])
            assert won == sorted(KEYS), f"each key must be won once; of the {name} keys the children won {won}"
        for late in lapsed:
            expect(await parent.complete(late), Verdict.LOST)


Report = dict[str, list[str]]
Work = Callable[[Harness, int, Barrier], Coroutine[Any, Any, Report]]
"""The work of a child process. It gets the number of the child, and waits for the other children at the barrier."""


def spawn(kit: StoreFactory, harness: Harness, work: Work) -> list[Report]:
    """Start the children together, wait for them, and return their reports."""
    mode = next(name for name, one in RUNTIME_KINDS.items() if one is harness.runtime_kind)
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(CHILDREN)
    children = [
        context.Process(target=child, args=(work, type(kit), mode, harness.directory, number, start), daemon=True)
        for number in range(CHILDREN)
    ]
    try:
        for one in children:
            one.start()
        wait_for_children(children)
    finally:
        for one in children:
            one.kill()
            one.join()
    return [json.loads((harness.directory / f"child {number}").read_text()) for number in range(CHILDREN)]


def wait_for_children(children: Sequence[BaseProcess]) -> None:
    """Wait until all children have succeeded. Stop at the first failure: the others may wait for its claim forever."""
    deadline = time.monotonic() + DEADLOCK_TIMEOUT
    running = {one.sentinel: one for one in children}
    while running:
        ended = wait(list(running), timeout=max(deadline - time.monotonic(), 0))
        assert ended, f"deadlock: {len(running)} children are still waiting after {DEADLOCK_TIMEOUT:g} s"
        for one in (running.pop(sentinel) for sentinel in ended if isinstance(sentinel, int)):
            one.join()
            assert one.exitcode == 0, f"a child exited with {one.exitcode}; see its standard error"


def child(work: Work, factory: type[StoreFactory], mode: str, directory: Path, number: int, start: Barrier) -> None:  # noqa: PLR0917 (arguments of a process)
    async def run_work(_: StoreFactory, harness: Harness) -> None:
        harness.use_wall_clock()
        report = await work(harness, number, start)
        (harness.directory / f"child {number}").write_text(json.dumps(report))

    run_check(factory(), mode, directory, run_work)


async def claim_in_child(harness: Harness, number: int, start: Barrier) -> Report:
    """Increment a counter under a claim, then claim many keys in this child's own order. Runs in each child process."""
    caller = await harness.caller()
    start.wait(DEADLOCK_TIMEOUT)
    await increment_file_under_claim(harness, caller)
    order = key_orders(KEYS, CHILDREN)[number]
    return {name: await claim_keys(caller, name, order) for name in ("fresh", "lapsed")}


async def increment_file_under_claim(harness: Harness, caller: Caller) -> None:
    counter = harness.directory / "counter"
    times = TIMES
    while times:
        answer = await caller.claim("the counter")
        if answer.verdict is not Verdict.ACQUIRED:
            expect(answer, Verdict.RUNNING)
            await harness.sleep(PAUSE)
            continue
        seen = int(counter.read_text())
        await harness.sleep(PAUSE)
        counter.write_text(str(seen + 1))
        expect(await caller.release(expect(answer, Verdict.ACQUIRED)), Verdict.OK)
        times -= 1


async def claim_keys(caller: Caller, name: str, order: list[str]) -> list[str]:
    """Claim all these keys in batches of four, and return those that were acquired."""
    won = []
    for first in range(0, len(order), 4):
        keys = order[first : first + 4]
        requests = [claim_request(key if name == "fresh" else f"{name} {key}") for key in keys]
        answers = await caller.store.claim(requests, timeout=TIMEOUT)
        won += [key for key, answer in zip(keys, answers, strict=True) if answer.verdict is Verdict.ACQUIRED]
    return won
