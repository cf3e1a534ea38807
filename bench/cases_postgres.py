"""PostgreSQL (private server, synchronous_commit on) compared with the bare drivers. Two schemas per side alternate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any

from bench import bare_postgres, peers_postgres
from bench.case import KINDS, Call, Case, Cases, Missing, Plan, work
from bench.cases_concurrent import threads
from bench.paired import ORDER_OF_A, ORDER_OF_B, Block, Pace, Run, alternate
from bench.peers import NotInstalled
from onceward import AsyncOnce, Once
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.postgres import PostgresStore
from tests.servers.postgres import Postgres, found_binaries

FEW, MANY = 8, 64
ALONE = {kind: f"postgres, {kind}, against bare psycopg" for kind in KINDS}
TASKS = {kind: f"postgres {MANY} tasks, {kind}, against bare asyncpg" for kind in KINDS}
PAIRS = f"postgres {MANY} tasks, replay, against asyncpg insert + select"
"""What people write by hand, with two statements. In `TASKS`, the other side knows that one statement is enough."""

PEERS = {(kind, peer): f"postgres, {kind}, against {peer}" for kind in KINDS for peer in peers_postgres.PEERS}
PEERS_IN_THREADS = {
    (kind, peer): f"postgres {MANY} threads, {kind}, against {peer}"
    for kind in KINDS
    for peer in ("exactly_once", "DBOS")
}
IDEMKIT_TASKS = {kind: f"postgres {MANY} tasks, {kind}, against idemkit" for kind in KINDS}
THREADS = {number: f"postgres {number} threads, against bare psycopg" for number in (FEW, MANY)}

Opened = Callable[[], AbstractContextManager[Block]]

_schemas = count()


def cases(plan: Plan) -> Cases:
    by_peers = (*PEERS.values(), *PEERS_IN_THREADS.values(), *IDEMKIT_TASKS.values())
    names = (*ALONE.values(), *TASKS.values(), PAIRS, *THREADS.values(), *by_peers)
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
        callers = plan.effort.callers
        for kind, name in TASKS.items():
            ours, theirs = (partial(side, server.url, kind, callers) for side in (by_tasks, by_asyncpg))
            yield from _case(name, plan, plan.effort.concurrent, ours, theirs)
        replays, pairs = partial(by_tasks, server.url, "replay", callers), partial(by_pairs, server.url, callers)
        yield from _case(PAIRS, plan, plan.effort.concurrent, replays, pairs)
        for most, name in THREADS.items():
            number = min(most, plan.effort.callers)
            guarded, bares = partial(by_threads, server.url, number), partial(by_bare_threads, server.url, number)
            yield from _case(name, plan, plan.effort.concurrent, guarded, bares)
        yield from _peers(plan, server.url)
    finally:
        server.remove()


def _case(name: str, plan: Plan, pace: Pace, ours: Opened, theirs: Opened) -> Cases:
    if not plan.wants(name):
        return
    with ExitStack() as stack:
        a = [stack.enter_context(ours()) for _ in (0, 1)]
        b = [stack.enter_context(theirs()) for _ in (0, 1)]
        yield Case(name, alternate(ORDER_OF_A, *a), alternate(ORDER_OF_B, *b), pace)


def _peers(plan: Plan, url: str) -> Cases:
    for (kind, peer), name in PEERS.items():
        yield from _vs_peer(name, plan, plan.effort.disk, partial(alone, url, kind), partial(by_peer, url, kind, peer))
    callers = plan.effort.callers
    for (kind, peer), name in PEERS_IN_THREADS.items():
        ours = partial(by_threads, url, callers, kind)
        theirs = partial(by_peer_threads, url, callers, kind, peer)
        yield from _vs_peer(name, plan, plan.effort.concurrent, ours, theirs)
    for kind, name in IDEMKIT_TASKS.items():
        ours, others = partial(by_tasks, url, kind, callers), partial(by_idemkit_tasks, url, kind, callers)
        yield from _vs_peer(name, plan, plan.effort.concurrent, ours, others)


def _vs_peer(name: str, plan: Plan, pace: Pace, ours: Opened, theirs: Opened) -> Cases:
    """Compare with a peer. It has one schema, and some have one instance per process, so schemas do not alternate."""
    if not plan.wants(name):
        return
    with ExitStack() as stack:
        try:
            other = stack.enter_context(theirs())
        except NotInstalled as missing:
            yield Missing(name, missing.package)
            return
        yield Case(name, stack.enter_context(ours()), other, pace)


def new_schema(url: str) -> str:
    name = f"bench_{next(_schemas)}"
    run(PostgresStore(url, schema=name).migrate(ThreadRuntime()))
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
    with bare_postgres.connection_per_thread(url, new_schema(url), work, select=kind == "replay") as call:
        yield KINDS[kind](call)


# ── many threads ──


@contextmanager
def by_threads(url: str, number: int, kind: str = "fresh") -> Iterator[Block]:
    with decorated(url) as call, threads(call, number, kind) as block:
        yield block


@contextmanager
def by_bare_threads(url: str, number: int) -> Iterator[Block]:
    with (
        bare_postgres.connection_per_thread(url, new_schema(url), work, select=False) as call,
        threads(call, number) as block,
    ):
        yield block


# ── peers ──


@contextmanager
def by_peer(url: str, kind: str, peer: str) -> Iterator[Block]:
    with ExitStack() as closing:
        yield KINDS[kind](peers_postgres.PEERS[peer](url, closing))


@contextmanager
def by_peer_threads(url: str, number: int, kind: str, peer: str) -> Iterator[Block]:
    with ExitStack() as closing, threads(peers_postgres.PEERS[peer](url, closing), number, kind) as block:
        yield block


@contextmanager
def by_idemkit_tasks(url: str, kind: str, callers: int) -> Iterator[Block]:
    with asyncio.Runner() as runner, ExitStack() as closing:
        call = peers_postgres.idemkit_awaited(url, closing, runner)
        yield KINDS[kind](call, loop=partial(together, runner, callers))


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


def by_asyncpg(url: str, kind: str, callers: int) -> AbstractContextManager[Block]:
    return _by_asyncpg(url, kind, callers, "first" if kind == "replay" else "never")


def by_pairs(url: str, callers: int) -> AbstractContextManager[Block]:
    return _by_asyncpg(url, "replay", callers, "second")


@contextmanager
def _by_asyncpg(url: str, kind: str, callers: int, select: bare_postgres.Select) -> Iterator[Block]:
    with asyncio.Runner() as runner:
        call, end = runner.run(bare_postgres.by_asyncpg(url, new_schema(url), work, callers, select=select))
        try:
            yield KINDS[kind](call, loop=partial(together, runner, callers))
        finally:
            runner.run(end())


def together(runner: asyncio.Runner, callers: int, call: Callable[..., Any], keys: Sequence[str]) -> Run:
    """Run this many tasks. Each takes the next key as soon as it has finished one."""

    async def caller(left: Iterator[str]) -> None:
        for key in left:
            await call(key)

    async def all_callers() -> None:
        left = iter(keys)
        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(caller(left))

    return lambda: runner.run(all_callers())
