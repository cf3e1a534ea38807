"""The pool of the PostgreSQL store, compared with psycopg_pool: take a connection and return it.

Every call to the store takes a connection once. `stores/postgres/pool.py` says why the store has a pool of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from bench.case import Case, Cases, Missing, Plan
from bench.paired import Block, Run
from onceward.protocol.runtime import Runtime
from onceward.runtime.aio import AsyncioRuntime
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.postgres.pool import Pool
from tests.servers.postgres import Postgres, found_binaries

SIZE = 8
SECONDS = 30.0
THREAD = "postgres pool, one thread, against psycopg_pool"
TASKS = "postgres pool, 64 tasks, against psycopg_pool"


def cases(plan: Plan) -> Cases:
    names = [name for name in (THREAD, TASKS) if plan.wants(name)]
    if not names:
        return
    binaries = found_binaries()
    try:
        import psycopg_pool  # noqa: F401 (only whether it is installed)
    except ModuleNotFoundError:
        binaries = None
    if binaries is None:
        yield from (Missing(name, "postgresql (Debian), psycopg_pool") for name in names)
        return
    server = Postgres(binaries)
    try:
        server.start()
        if THREAD in names:
            with own_in_thread(server.url) as ours, theirs_in_thread(server.url) as theirs:
                yield Case(THREAD, ours, theirs, plan.effort.calls)
        if TASKS in names:
            callers = plan.effort.callers
            with own_in_tasks(server.url, callers) as ours, theirs_in_tasks(server.url, callers) as theirs:
                yield Case(TASKS, ours, theirs, plan.effort.concurrent)
    finally:
        server.remove()


@contextmanager
def own_pool(url: str) -> Iterator[Pool]:
    pool = Pool(url, "bench", SIZE, prepares=True)
    pool.open()
    try:
        yield pool
    finally:
        pool.close()


async def take_and_return(pool: Pool, runtime: Runtime) -> None:
    connection = await pool.acquire(runtime, time.monotonic() + SECONDS)
    await runtime.sleep(0)  # use the connection: otherwise no task would ever wait for one
    pool.release(connection)


@contextmanager
def own_in_thread(url: str) -> Iterator[Block]:
    runtime = ThreadRuntime()
    with own_pool(url) as pool:
        yield repeated(lambda: run(take_and_return(pool, runtime)))


@contextmanager
def theirs_in_thread(url: str) -> Iterator[Block]:
    from psycopg_pool import ConnectionPool

    with ConnectionPool(url, min_size=SIZE, max_size=SIZE, open=True) as pool:
        pool.wait()

        def call() -> None:
            connection = pool.getconn(SECONDS)
            time.sleep(0)
            pool.putconn(connection)

        yield repeated(call)


@contextmanager
def own_in_tasks(url: str, callers: int) -> Iterator[Block]:
    runtime = AsyncioRuntime()
    with asyncio.Runner() as runner, own_pool(url) as pool:
        yield by_tasks(runner, callers, lambda: take_and_return(pool, runtime))


@contextmanager
def theirs_in_tasks(url: str, callers: int) -> Iterator[Block]:
    from psycopg_pool import AsyncConnectionPool

    with asyncio.Runner() as runner:
        pool = AsyncConnectionPool(url, min_size=SIZE, max_size=SIZE, open=False)
        runner.run(pool.open(wait=True))

        async def call() -> None:
            connection = await pool.getconn(SECONDS)
            await asyncio.sleep(0)
            await pool.putconn(connection)

        try:
            yield by_tasks(runner, callers, call)
        finally:
            runner.run(pool.close())


def repeated(call: Callable[[], object]) -> Block:
    def block(times: int) -> Run:
        def run_all() -> None:
            for _ in range(times):
                call()

        return run_all

    return block


def by_tasks(runner: asyncio.Runner, callers: int, call: Callable[[], Coroutine[Any, Any, None]]) -> Block:
    """Return a block whose operations are shared by `callers` tasks."""

    async def together(times: int) -> None:
        left = iter(range(times))

        async def caller() -> None:
            for _ in left:
                await call()

        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(caller())

    return lambda times: lambda: runner.run(together(times))
