"""Races of processes. Children are spawned, import the conformance class by its name, and open the place themselves."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from onceward.protocol.requests import Verdict
from onceward.stores.clock import WallClock

from .factory import StoreFactory, check, require
from .races import PAUSE, orders
from .runtimes import COLOURS, PATIENCE
from .stage import SHORT, TIMEOUT, Caller, Stage, expect, wanting

CHILDREN = 3
"""More than two, so that a loser may also meet a loser; few, because each costs an interpreter."""

TIMES = 8
KEYS = [f"key {number}" for number in range(12)]


class ProcessChecks(StoreFactory):
    """Several processes on one place, on the machine's own clock."""

    @check(mission=("B2", "C2"), rival=(18,), fault=("F39", "F40"), needs=("shared",))
    async def test_processes_on_one_place_never_own_a_key_at_the_same_time(self, stage: Stage) -> None:
        stage.clock = WallClock()
        stage.fake = None
        parent = await stage.caller()
        lapsed = [await parent.acquire(f"lapsed {key}", lease=SHORT) for key in KEYS]
        await stage.lapse()
        (stage.place / "counter").write_text("0")
        reports = spawn(self, stage, claim_in_child)
        assert int((stage.place / "counter").read_text()) == CHILDREN * TIMES, "the counter lost an increment"
        for name in ("fresh", "lapsed"):
            won = sorted(key for report in reports for key in report[name])
            assert won == sorted(KEYS), f"each key once, please; the children won {won} of the {name} ones"
        for late in lapsed:
            expect(await parent.complete(late), Verdict.LOST)


Report = dict[str, list[str]]
Work = Callable[[str, str, str, int, Barrier], Report]
"""What a child does: kit, colour, place, its number, and the barrier before which all wait for each other."""


def spawn(kit: StoreFactory, stage: Stage, work: Work) -> list[Report]:
    """Start the children at once, wait for them, and read what they report."""
    mode = next(name for name, one in COLOURS.items() if one is stage.mode)
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(CHILDREN)
    factory = f"{type(kit).__module__}:{type(kit).__qualname__}"
    children = [
        context.Process(target=child, args=(work, factory, mode, str(stage.place), number, start), daemon=True)
        for number in range(CHILDREN)
    ]
    try:
        for one in children:
            one.start()
        await_all(children)
    finally:
        for one in children:
            one.kill()
            one.join()
    return [json.loads((stage.place / f"child {number}").read_text()) for number in range(CHILDREN)]


def await_all(children: Sequence[BaseProcess]) -> None:
    """Until all have ended well. If one did not, the others may wait for its claim in vain."""
    deadline = time.monotonic() + PATIENCE
    running = {one.sentinel: one for one in children}
    while running:
        ended = wait(list(running), timeout=max(deadline - time.monotonic(), 0))
        assert ended, f"deadlock: {len(running)} children are still waiting after {PATIENCE:g} s"
        for one in (running.pop(sentinel) for sentinel in ended if isinstance(sentinel, int)):
            one.join()
            assert one.exitcode == 0, f"a child ended with {one.exitcode}; what it said is on its standard error"


def child(work: Work, factory: str, mode: str, place: str, number: int, start: Barrier) -> None:  # noqa: PLR0917 (so processes are started)
    require(kit_of(factory), "shared")
    Path(place, f"child {number}").write_text(json.dumps(work(factory, mode, place, number, start)))


def kit_of(factory: str) -> StoreFactory:
    module, _, name = factory.partition(":")
    kit: Any = import_module(module)
    for part in name.split("."):
        kit = getattr(kit, part)
    made: StoreFactory = kit()
    return made


def claim_in_child(factory: str, mode: str, place: str, number: int, start: Barrier) -> Report:
    """What each child does: count up behind a claim, then race for many keys in an order of its own."""
    chosen = COLOURS[mode]

    async def work() -> Report:
        stage = Stage(kit_of(factory), chosen, Path(place))
        stage.clock = WallClock()
        stage.fake = None
        caller = await stage.caller()
        start.wait(PATIENCE)
        await count_up_in_a_file(stage, caller)
        order = orders(KEYS, CHILDREN)[number]
        won = {name: await win(caller, name, order) for name in ("fresh", "lapsed")}
        await stage.end()
        return won

    return chosen.run(work())


async def count_up_in_a_file(stage: Stage, caller: Caller) -> None:
    counter = stage.place / "counter"
    times = TIMES
    while times:
        answer = await caller.claim("the counter")
        if answer.verdict is not Verdict.ACQUIRED:
            expect(answer, Verdict.RUNNING)
            await stage.pause(PAUSE)
            continue
        seen = int(counter.read_text())
        await stage.pause(PAUSE)
        counter.write_text(str(seen + 1))
        expect(await caller.release(expect(answer, Verdict.ACQUIRED)), Verdict.OK)
        times -= 1


async def win(caller: Caller, name: str, order: list[str]) -> list[str]:
    """Claim all these keys in batches of four; which ones were ours?"""
    won = []
    for first in range(0, len(order), 4):
        keys = order[first : first + 4]
        requests = [wanting(key if name == "fresh" else f"{name} {key}") for key in keys]
        answers = await caller.store.claim(requests, timeout=TIMEOUT)
        won += [key for key, answer in zip(keys, answers, strict=True) if answer.verdict is Verdict.ACQUIRED]
    return won
