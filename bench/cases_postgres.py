"""PostgreSQL (a private one, synchronous_commit on) beside the bare drivers. Two schemas a side, in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any

from bench import bare_postgres
from bench.case import KINDS, Call, Case, Cases, Missing, Plan, work
from bench.cases_crowd import threads
from bench.paired import TURNS_OF_A, TURNS_OF_B, Block, Pace, Run, in_turn
from onceward import AsyncOnce, Once
from onceward.bridge import run
from onceward.stores.postgres import PostgresStore
from onceward.worlds.threads import Threads
from tests.servers.postgres import Postgres, found_binaries

FEW, MANY = 8, 64
ALONE = {kind: f"postgres, {kind}, against bare psycopg" for kind in KINDS}
TASKS = {kind: f"postgres {MANY} tasks, {kind}, against bare asyncpg" for kind in KINDS}
THREADS = {number: f"postgres {number} threads, against bare psycopg" for number in (FEW, MANY)}

Opened = Callable[[], AbstractContextManager[Block]]

_schemas = count()


def cases(plan: Plan) -> Cases:
    names = (*ALONE.values(), *TASKS.values(), *THREADS.values())
    if not plan.wants(*names):
        return
    binaries = found_binaries()
    if binaries is None:
        yield from (Missing(name, "postgresql (Debian)") for name in names if plan.wants(name))
        return
    server = Postgres(binaries)
    try:
        server.start()
        for kind, name in ALONE.items():
            pace = plan.effort.disk if kind == "fresh" else plan.effort.calls
            yield from _case(name, plan, pace, partial(alone, server.url, kind), partial(bare, server.url, kind))
        for kind, name in TASKS.items():
            callers = plan.effort.callers
            ours, theirs = (partial(side, server.url, kind, callers) for side in (by_tasks, by_asyncpg))
            yield from _case(name, plan, plan.effort.crowd, ours, theirs)
        for most, name in THREADS.items():
            number = min(most, plan.effort.callers)
            crowd, bares = partial(by_threads, server.url, number), partial(by_bare_threads, server.url, number)
            yield from _case(name, plan, plan.effort.crowd, crowd, bares)
    finally:
        server.remove()


def _case(name: str, plan: Plan, pace: Pace, ours: Opened, theirs: Opened) -> Cases:
    if not plan.wants(name):
        return
    with ExitStack() as stack:
        a = [stack.enter_context(ours()) for _ in (0, 1)]
        b = [stack.enter_context(theirs()) for _ in (0, 1)]
        yield Case(name, in_turn(TURNS_OF_A, *a), in_turn(TURNS_OF_B, *b), pace)


def new_schema(url: str) -> str:
    name = f"bench_{next(_schemas)}"
    run(PostgresStore(url, schema=name).migrate(Threads()))
    return name


# ── one caller ──


@contextmanager
def alone(url: str, kind: str) -> Iterator[Block]:
    with decorated(url) as call:
        yield KINDS[kind](call)


@contextmanager
def decorated(url: str) -> Iterator[Call]:
    with Once(PostgresStore(url, schema=new_schema(url)), window="forever") as once:
        yield once(key="{key}", name="bench")(work)


@contextmanager
def bare(url: str, kind: str) -> Iterator[Block]:
    with bare_postgres.connection_per_thread(url, new_schema(url), work, looks=kind == "replay") as call:
        yield KINDS[kind](call)


# ── many threads ──


@contextmanager
def by_threads(url: str, number: int) -> Iterator[Block]:
    with decorated(url) as call, threads(call, number) as block:
        yield block


@contextmanager
def by_bare_threads(url: str, number: int) -> Iterator[Block]:
    with (
        bare_postgres.connection_per_thread(url, new_schema(url), work, looks=False) as call,
        threads(call, number) as block,
    ):
        yield block


# ── many tasks ──


@contextmanager
def by_tasks(url: str, kind: str, callers: int) -> Iterator[Block]:
    with asyncio.Runner() as runner:
        once = AsyncOnce(PostgresStore(url, schema=new_schema(url)), window="forever")

        @once(key="{key}", name="bench")
        async def call(key: str) -> str:
            return work(key)

        try:
            yield KINDS[kind](call, loop=partial(together, runner, callers))
        finally:
            runner.run(once.close())


@contextmanager
def by_asyncpg(url: str, kind: str, callers: int) -> Iterator[Block]:
    with asyncio.Runner() as runner:
        call, end = runner.run(bare_postgres.by_asyncpg(url, new_schema(url), work, callers, looks=kind == "replay"))
        try:
            yield KINDS[kind](call, loop=partial(together, runner, callers))
        finally:
            runner.run(end())


def together(runner: asyncio.Runner, callers: int, call: Callable[..., Any], keys: Sequence[str]) -> Run:
    """So many tasks take the next key each as soon as they are done with one."""

    async def caller(left: Iterator[str]) -> None:
        for key in left:
            await call(key)

    async def all_callers() -> None:
        left = iter(keys)
        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(caller(left))

    return lambda: runner.run(all_callers())
