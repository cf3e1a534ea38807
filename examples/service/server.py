"""Run an application as a service: `serve(app, once, chosen)`.

Options come from the command line or the environment (`HOST`, `PORT`, `METRICS_TOKEN`, `LOG_LEVEL`). SIGTERM or Ctrl-C
stops it gracefully: it accepts no more requests, finishes those in progress and closes the client, which completes or
releases its claims.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, cast

from onceward import AsyncOnce, Once

from .json_log import log_as_json
from .operational import App, IsReady, Operational

READINESS_KEY = "onceward-readiness"
STOP_TIMEOUT = 25  # seconds for requests in progress: platforms kill a container after 10 to 30 s


def add_options(parser: argparse.ArgumentParser, port: int = 8080) -> None:
    """Add the options of every service."""
    env = os.environ.get
    parser.add_argument("--host", default=env("HOST", "127.0.0.1"), help="address, default %(default)s; $HOST")
    parser.add_argument("--port", type=int, default=int(env("PORT", str(port))), help="default %(default)s; $PORT")
    parser.add_argument("--log-level", default=env("LOG_LEVEL", "info"), help="default %(default)s; $LOG_LEVEL")
    parser.add_argument("--metrics-token", default=env("METRICS_TOKEN"), help="for GET /metrics; $METRICS_TOKEN")


def add_oidc_options(parser: argparse.ArgumentParser, requests: str) -> None:
    """Add the options that authenticate requests of Pub/Sub."""
    env = os.environ.get
    parser.add_argument(
        "--oidc-audience", default=env("OIDC_AUDIENCE"), metavar="URL",
        help=f"{requests} require Google's signed token for this audience; $OIDC_AUDIENCE",
    )  # fmt: skip
    parser.add_argument(
        "--oidc-email", default=env("OIDC_EMAIL"), metavar="ADDRESS",
        help="the service account of the push subscription; $OIDC_EMAIL",
    )  # fmt: skip


def is_public(host: str) -> bool:
    """Return whether other machines may reach this address."""
    return host != "localhost" and not ip_address(host).is_loopback


def serve(
    app: App, once: Once | AsyncOnce, chosen: argparse.Namespace, *others: Once | AsyncOnce, **metrics: Any
) -> None:
    """Serve an ASGI application until it is stopped.

    The service is ready if the stores of all its clients respond, and `/metrics` has the events of all of them.
    `metrics` are settings of `prometheus.export`.
    """
    asyncio.run(serve_async(app, once, chosen, *others, **metrics))


async def serve_async(
    app: App, once: Once | AsyncOnce, chosen: argparse.Namespace, *others: Once | AsyncOnce, **metrics: Any
) -> None:
    """As `serve`, inside a running event loop."""
    try:
        import uvicorn  # not needed for demos and storms
    except ModuleNotFoundError:
        sys.exit('serve needs a server: pip install ".[serve]"')
    log_as_json(chosen.log_level)
    is_ready = _ready_check(once, *others)
    await is_ready()
    exported = metrics_app(once, *others, **metrics) if chosen.metrics_token or not is_public(chosen.host) else None
    wrapped = Operational(app, is_ready, exported, chosen.metrics_token)
    config = uvicorn.Config(
        wrapped,
        host=chosen.host,
        port=chosen.port,
        log_config=None,
        access_log=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=STOP_TIMEOUT,
    )

    class Server(uvicorn.Server):
        """Prints its address when it accepts requests, and reports that it is not ready when it stops."""

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.servers:
                host, port = self.servers[0].sockets[0].getsockname()[:2]
                print(f"http://{host}:{port}/", flush=True)

        async def shutdown(self, sockets: Any = None) -> None:
            wrapped.stopping = True
            await super().shutdown(sockets)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn raises the signal again at its end: the client must be closed
    await Server(config).serve()


def check(once: Once) -> None:
    """Read a key. Raise if the store does not answer, has no tables, or is not safe to use."""
    once.read(READINESS_KEY)


async def check_async(once: AsyncOnce) -> None:
    await once.read(READINESS_KEY)


def _ready_check(*clients: Once | AsyncOnce) -> IsReady:
    async def is_ready() -> None:
        for once in clients:
            if isinstance(once, Once):
                await asyncio.to_thread(check, once)
            else:
                await check_async(once)

    return is_ready


def metrics_app(once: Once | AsyncOnce, *others: Once | AsyncOnce, **settings: Any) -> App | None:
    """Return the metrics of these clients as an ASGI application, or None if prometheus-client is not installed."""
    try:
        from prometheus_client import CollectorRegistry, make_asgi_app
    except ModuleNotFoundError:
        return None
    from onceward.observe import prometheus

    registry = CollectorRegistry()
    prometheus.export(once, registry, **settings)
    for other in others:
        prometheus.export(other, registry, pending=False)
    app: App = make_asgi_app(registry)
    return app


def as_asgi(app: Callable[..., Any], threads: int = 32) -> App:
    """Return a WSGI application as an ASGI one. Each request runs in a thread."""
    from a2wsgi import WSGIMiddleware

    wrapped: Any = WSGIMiddleware(app, workers=threads)
    return cast("App", wrapped)
