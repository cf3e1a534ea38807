"""Processes under load that are stopped by SIGTERM: `python -m tests.integration.stopped_workers threads`
(or `tasks`, `closed threads`, `closed tasks`).

`asgi` is an application for uvicorn, `wsgi` one for gunicorn, and `app` one for Celery. Each closes its client as
docs/howto/shutdown.md says. The folder in `FOLDER` holds the store, and an empty file per effect.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import worker_process_shutdown

from onceward import AsyncOnce, Once
from onceward.errors import Stopping
from onceward.http.asgi import IdempotencyMiddleware as AsgiMiddleware
from onceward.http.wsgi import IdempotencyMiddleware as WsgiMiddleware

LEASE = "1h"  # no lease expires in a test
WORKERS = 8
WORK_SECONDS = 0.1  # so that calls are in flight when the process is stopped

FOLDER = Path(os.environ["FOLDER"])
STORE = f"sqlite:///{FOLDER}/once.db"


def effect(name: str) -> str:
    """Fail if the effect has happened before."""
    (FOLDER / f"effect-{name}").touch(exist_ok=False)
    return name


def work(name: str) -> str:
    time.sleep(WORK_SECONDS)
    return effect(name)


async def async_work(name: str) -> str:
    await asyncio.sleep(WORK_SECONDS)
    return effect(name)


def in_threads() -> None:
    once, numbers = Once(STORE, lease=LEASE), count()
    signal.signal(signal.SIGTERM, lambda *_: once.stop())

    def call_until_stopped() -> None:
        with suppress(Stopping):
            while True:
                name = str(next(numbers))
                once.run(name, work, name)

    with ThreadPoolExecutor(WORKERS) as pool:
        calls = [pool.submit(call_until_stopped) for _ in range(WORKERS)]
    once.close()
    for call in calls:
        call.result()


async def in_tasks() -> None:
    once, numbers = AsyncOnce(STORE, lease=LEASE), count()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, once.stop)

    async def call_until_stopped() -> None:
        with suppress(Stopping):
            while True:
                name = str(next(numbers))
                await once.run(name, async_work, name)

    await asyncio.gather(*(call_until_stopped() for _ in range(WORKERS)))
    await once.close()


# ── close while calls are in flight ──


def in_closed_threads() -> None:
    once, numbers, stopped = Once(STORE, lease=LEASE), count(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())

    def call_until_stopped() -> None:
        with suppress(Stopping):
            while True:
                name = str(next(numbers))
                once.run(name, work, name)

    with ThreadPoolExecutor(WORKERS) as pool:
        calls = [pool.submit(call_until_stopped) for _ in range(WORKERS)]
        stopped.wait()
        once.close()
    for call in calls:
        call.result()


async def in_closed_tasks() -> None:
    once, numbers, stopped = AsyncOnce(STORE, lease=LEASE), count(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)

    async def call_until_stopped() -> None:
        with suppress(Stopping):
            while True:
                name = str(next(numbers))
                await once.run(name, async_work, name)

    calls = [asyncio.create_task(call_until_stopped()) for _ in range(WORKERS)]
    await stopped.wait()
    await once.close()
    await asyncio.gather(*calls)


# ── HTTP ──


@cache
def asgi_middleware() -> tuple[AsyncOnce, Any]:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        name = scope["path"].strip("/")
        await async_work(name)
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": name.encode()})

    once = AsyncOnce(STORE, lease=LEASE)
    return once, AsgiMiddleware(application, once, principal=lambda _: "shop", required=["*"])


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    once, middleware = asgi_middleware()
    if scope["type"] != "lifespan":
        await middleware(scope, receive, send)
        return
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await once.close()
    await send({"type": "lifespan.shutdown.complete"})


@cache
def wsgi_middleware() -> tuple[Once, Any]:
    def application(environ: Any, start_response: Any) -> list[bytes]:
        name = environ["PATH_INFO"].strip("/")
        work(name)
        start_response("201 Created", [("content-type", "text/plain")])
        return [name.encode()]

    once = Once(STORE, lease=LEASE)
    return once, WsgiMiddleware(application, once, principal=lambda _: "shop", required=["*"])


def wsgi(environ: Any, start_response: Any) -> Any:
    return wsgi_middleware()[1](environ, start_response)


def worker_exit(_server: Any, _worker: Any) -> None:
    """Close the client of a gunicorn worker. gunicorn calls it, as this module is also its configuration."""
    wsgi_middleware()[0].close()


# ── Celery ──

app = Celery("stopped", broker=os.environ.get("BROKER_URL"))
app.conf.task_acks_late = True
app.conf.worker_prefetch_multiplier = 1


@cache
def celery_client() -> Once:
    return Once(STORE, lease=LEASE)


@app.task(name="task")  # type: ignore[untyped-decorator]
def task(name: str) -> str:
    return celery_client().run(name, work, name)


@worker_process_shutdown.connect  # type: ignore[untyped-decorator]
def close_client(**_: Any) -> None:
    celery_client().close()


if __name__ == "__main__":
    match sys.argv[1]:
        case "threads":
            in_threads()
        case "tasks":
            asyncio.run(in_tasks())
        case "closed threads":
            in_closed_threads()
        case "closed tasks":
            asyncio.run(in_closed_tasks())
