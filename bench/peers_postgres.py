"""Other libraries on PostgreSQL, each used as in its documentation, on the same function."""

from __future__ import annotations

import logging
from asyncio import Runner
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from itertools import count
from typing import Any

from bench.case import Call, work
from bench.peers import LEASE, module
from bench.peers_redis import bench_scope, by_name

Awaited = Callable[[str], Awaitable[object]]
Peer = Callable[[str, ExitStack], Call]

_tables = count()


def idemkit(url: str, closing: ExitStack) -> Call:
    library, bridge = module("idemkit", "idemkit"), module("idemkit.core.sync_bridge", "idemkit")
    backend = bridge.run_sync(_prepared(library, url))
    closing.callback(lambda: bridge.run_sync(backend.aclose()))
    choices = library.MethodConfig(key_fields=["key"], scope=bench_scope)
    guarded = library.idempotent_sync(backend=backend, config=choices)(by_name)
    return lambda key: guarded(key=key)


def idemkit_awaited(url: str, closing: ExitStack, runner: Runner) -> Awaited:
    library = module("idemkit", "idemkit")
    backend = runner.run(_prepared(library, url))
    closing.callback(lambda: runner.run(backend.aclose()))
    choices = library.MethodConfig(key_fields=["key"], scope=bench_scope)

    async def named(*, key: str) -> str:
        return work(key)

    guarded = library.idempotent(backend=backend, config=choices)(named)
    return lambda key: guarded(key=key)


async def _prepared(library: Any, url: str) -> Any:
    table = f"idemkit_{next(_tables)}"
    await module("idemkit.backends.postgres", "idemkit").init_pg(url, table=table)
    return library.PostgresBackend.from_url(url, table=table)


def exactly_once(url: str, closing: ExitStack) -> Call:
    """Uses a lease, as in memory. Its only table is emptied, because it contains the keys of the previous case."""
    library = module("exactly_once", "exactly-once")
    store = library.Store.postgres(url)
    closing.callback(store.close)
    store.claim("a first call makes the table")
    _truncate(url, "effects")
    guarded: Call = library.once(store, key=lambda key: key, lease_ttl=LEASE)(work)
    return guarded


def dbos(url: str, closing: ExitStack) -> Call:
    """Runs a workflow with the caller's id. There is one DBOS instance per process."""
    library = module("dbos", "dbos")
    logging.getLogger("dbos").setLevel(logging.ERROR)
    library.DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "run_admin_server": False})
    closing.callback(lambda: library.DBOS.destroy(destroy_registry=True))
    flow = library.DBOS.workflow(name="bench")(_flow)
    library.DBOS.launch()
    _truncate(url, "dbos.workflow_status")

    def call(key: str) -> object:
        with library.SetWorkflowID(key):
            return flow(key)

    return call


def _flow(key: str) -> str:
    return work(key)


def _truncate(url: str, table: str) -> None:
    psycopg = module("psycopg", "psycopg")
    with psycopg.connect(url) as connection:
        connection.execute(f"TRUNCATE {table} CASCADE")


PEERS: dict[str, Peer] = {"idemkit": idemkit, "exactly_once": exactly_once, "DBOS": dbos}
