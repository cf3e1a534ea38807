"""The cost of counters per scope: one event on the hot path, and whole calls, with and without counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.case import KINDS, Call, Case, Cases, Plan, work
from bench.paired import Block, Run
from onceward import Once
from onceward.stores import MemoryStore

EVENT = "an event, counted by scope, against not counted"


def cases(plan: Plan) -> Cases:
    if plan.wants(EVENT):
        with client(counters=True) as ours, client(counters=False) as theirs:
            yield Case(EVENT, emitting(ours), emitting(theirs), plan.effort.calls)
    for kind, block in KINDS.items():
        name = f"memory with counters, {kind}, against without"
        if plan.wants(name):
            with client(counters=True) as ours, client(counters=False) as theirs:
                yield Case(name, block(decorated(ours)), block(decorated(theirs)), plan.effort.calls)


@contextmanager
def client(*, counters: bool) -> Iterator[Once]:
    with Once(MemoryStore(), window="forever", counters=counters) as once:
        yield once


def decorated(once: Once) -> Call:
    guarded: Callable[[str], object] = once(key="{key}", name="bench")(work)
    return guarded


def emitting(once: Once) -> Block:
    """Emit an event as the hot paths do."""
    engine, key = once.engine, once.key("bench")

    def block(times: int) -> Run:
        def run() -> None:
            for _ in range(times):
                if engine.wants("completed"):
                    engine.emit_wanted("completed", key)

        return run

    return block
