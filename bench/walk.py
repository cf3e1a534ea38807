"""How far one call travels: `python -m bench.walk` prints calls, files and depth inside `onceward`.

A call is one that Python's profiler reports (`sys.setprofile`), in a file of the package. A coroutine that continues
after a wait is not called again, and does not count again. Use `--list` to see the calls.
"""

from __future__ import annotations

import argparse
import asyncio
import dis
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import onceward
from onceward import AsyncOnce, Once

RESUME = dis.opmap["RESUME"]
PACKAGE = str(Path(onceward.__file__).parent) + os.sep


class Walk(NamedTuple):
    """What one call passed through."""

    calls: int
    files: int
    depth: int

    def __str__(self) -> str:
        return f"{self.calls:4d} calls  {self.files:3d} files  {self.depth:3d} deep"


class Recorder:
    """Records the frames of this thread that are inside `onceward`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.files: set[str] = set()
        self._depth = self._deepest = 0

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return
        if event == "call":
            self._depth += 1
            self._deepest = max(self._deepest, self._depth)
            if continues(frame):
                return
            path = code.co_filename.removeprefix(PACKAGE)
            self.files.add(path)
            self.lines.append(f"{'  ' * self._depth}{path}:{code.co_firstlineno} {code.co_qualname}")
        elif event == "return":
            self._depth -= 1

    def walk(self) -> Walk:
        return Walk(len(self.lines), len(self.files), self._deepest)


def continues(frame: FrameType) -> bool:
    """Return whether this frame is a coroutine or generator that continues after a wait.

    It is then at a RESUME instruction whose argument is not 0: 0 is the start of a function.
    """
    code = frame.f_code.co_code
    return code[frame.f_lasti] == RESUME and code[frame.f_lasti + 1] & 3 != 0


@contextmanager
def recording() -> Iterator[Recorder]:
    recorder = Recorder()
    sys.setprofile(recorder)
    try:
        yield recorder
    finally:
        sys.setprofile(None)


APP = f"walk {os.getpid()} {time.time()}"  # a store may have the keys of an earlier run
WARM_UP = 5  # calls before the recorded one: they open the store and fill caches


def walk_sync(url: str) -> dict[str, Recorder]:
    """Walk a first call and a replay of a decorated function."""
    with Once(url, app=APP) as once:

        @once(key="{order}")
        def charge(order: int) -> dict[str, int]:
            return {"order": order}

        for order in range(WARM_UP):
            charge(order)
            charge(order)
        with recording() as first:
            charge(WARM_UP)
        with recording() as replay:
            charge(WARM_UP)
    return {"first call": first, "replay": replay}


async def _walk_async(url: str) -> dict[str, Recorder]:
    once = AsyncOnce(url, app=APP)

    @once(key="{order}")
    async def charge(order: int) -> dict[str, int]:
        return {"order": order}

    for order in range(WARM_UP):
        await charge(order)
        await charge(order)
    with recording() as first:
        await charge(WARM_UP)
    with recording() as replay:
        await charge(WARM_UP)
    await once.close()
    return {"first call": first, "replay": replay}


def walk_async(url: str) -> dict[str, Recorder]:
    """Walk the same on an event loop, with all of the loop's tasks."""
    return asyncio.run(_walk_async(url))


async def _walk_http() -> dict[str, Recorder]:
    from onceward.http.asgi import IdempotencyMiddleware

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 201, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"done"})

    once = AsyncOnce("memory://", app=APP)
    served = IdempotencyMiddleware(app, once, principal=lambda _scope: "alice", required=["/payments"])

    async def request(key: int) -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"{}"}

        async def send(_message: Any) -> None:
            return

        headers = [(b"idempotency-key", b'"key-%d"' % key), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/payments", "raw_path": b"/payments", "query_string": b""}
        await served({**scope, "headers": headers}, receive, send)

    for key in range(WARM_UP):
        await request(key)
    with recording() as first:
        await request(WARM_UP)
    with recording() as replay:
        await request(WARM_UP)
    await once.close()
    return {"first call": first, "replay": replay}


def walk_http() -> dict[str, Recorder]:
    """Walk a request through the ASGI middleware, on the memory store."""
    return asyncio.run(_walk_http())


def cases(redis: str | None) -> Iterator[tuple[str, Callable[[], dict[str, Recorder]]]]:
    with tempfile.TemporaryDirectory() as folder:
        yield "memory", lambda: walk_sync("memory://")
        yield "sqlite", lambda: walk_sync(f"sqlite:///{folder}/walk.db")
        if redis is not None:
            yield "redis, asyncio", lambda: walk_async(redis)
            yield "redis, sync", lambda: walk_sync(redis)
        yield "http", walk_http


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.walk", description=__doc__)
    parser.add_argument("--redis", help="URL of a Redis server, to walk calls on it, too")
    parser.add_argument("--list", metavar="CASE", help="print each call of this case, indented by depth")
    arguments = parser.parse_args()
    for name, measure in cases(arguments.redis):
        if arguments.list not in (None, name):
            continue
        for kind, recorder in measure().items():
            print(f"{name + ', ' + kind:28} {recorder.walk()}")
            if arguments.list is not None:
                print("\n".join(recorder.lines))


if __name__ == "__main__":
    main()
