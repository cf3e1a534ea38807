"""Many concurrent callers on SQLite FULL: the total number of cycles per second. Two files per side."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench import bare
from bench.case import KINDS, Call, Case, Cases, Plan, fresh, work
from bench.cases_sqlite import decorated
from bench.paired import ORDER_OF_A, ORDER_OF_B, Block, Pace, Run, alternate
from onceward import AsyncOnce

SHARED = "sqlite 64 threads, against a shared connection"
PER_THREAD = "sqlite 64 threads, against a connection per thread"
TASKS = "sqlite 64 tasks, against one at a time"

Opened = Callable[[Path], AbstractContextManager[Block]]


def cases(plan: Plan) -> Cases:
    effort = plan.effort
    ours = partial(by_threads, partial(decorated, durability="FULL"), effort.callers)
    shared = partial(by_threads, partial(bare.shared_connection, work=work), effort.callers)
    per_thread = partial(by_threads, partial(bare.connection_per_thread, work=work), effort.callers)
    yield from _case(SHARED, plan, effort.concurrent, ours, shared)
    yield from _case(PER_THREAD, plan, effort.contended, ours, per_thread)
    yield from _case(TASKS, plan, effort.concurrent, partial(by_tasks, effort.callers), partial(by_tasks, 1))


def _case(name: str, plan: Plan, pace: Pace, ours: Opened, theirs: Opened) -> Cases:
    if not plan.wants(name):
        return
    with tempfile.TemporaryDirectory(dir=plan.folder) as folder, ExitStack() as stack:
        a = [stack.enter_context(ours(Path(folder) / f"ours-{n}.db")) for n in (0, 1)]
        b = [stack.enter_context(theirs(Path(folder) / f"theirs-{n}.db")) for n in (0, 1)]
        yield Case(name, alternate(ORDER_OF_A, *a), alternate(ORDER_OF_B, *b), pace)


@contextmanager
def by_threads(opened: Callable[[Path], AbstractContextManager[Call]], callers: int, path: Path) -> Iterator[Block]:
    with opened(path) as call, threads(call, callers) as block:
        yield block


@contextmanager
def threads(call: Call, callers: int, kind: str = "fresh") -> Iterator[Block]:
    """Run this many threads. Each takes the next key as soon as it has finished one."""

    def together(call: Callable[..., object], keys: Sequence[str]) -> Run:
        left = iter(keys)

        def caller() -> None:
            for key in left:
                call(key)

        def run() -> None:
            for one in [pool.submit(caller) for _ in range(callers)]:
                one.result()

        return run

    with ThreadPoolExecutor(callers) as pool:
        yield KINDS[kind](call, loop=together)


@contextmanager
def by_tasks(callers: int, path: Path) -> Iterator[Block]:
    """Do what `by_threads` does with tasks of one event loop. With one caller, calls run one at a time."""
    with asyncio.Runner() as runner:
        once = AsyncOnce(f"sqlite:///{path}?synchronous=FULL", window="forever")

        @once(key="{key}", name="bench")
        async def call(key: str) -> str:
            return work(key)

        async def caller(keys: Iterator[str]) -> None:
            for key in keys:
                await call(key)

        async def all_callers(keys: Sequence[str]) -> None:
            left = iter(keys)
            async with asyncio.TaskGroup() as group:
                for _ in range(callers):
                    group.create_task(caller(left))

        def together(_: object, keys: Sequence[str]) -> Run:
            return lambda: runner.run(all_callers(keys))

        try:
            yield fresh(call, loop=together)
        finally:
            runner.run(once.close())
