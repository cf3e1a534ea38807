"""A payment API that commits its row, its record and its response in one transaction, on each framework.

    python -m tests.http.payment_server FRAMEWORK STORE FOLDER POINT

It listens on a free port, and writes it to the folder's file `port`. The first process that reaches POINT kills itself
there. Requests with `"waits": true` wait in the endpoint until the folder has the file `go`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from onceward import AsyncOnce, Once

POINTS = ("in_block", "before_commit", "after_commit", "before_response")
INSERT = text("INSERT INTO payments (cents) VALUES (:cents) RETURNING id")
SETTINGS: dict[str, Any] = {"lease": "2s", "settle_timeout": "60s"}
ROUTE = "/payments"


class Shop:
    """What the endpoints of all frameworks share: the database, and where they die or wait."""

    def __init__(self, store: str, folder: Path, point: str) -> None:
        self.store = store
        self._folder = folder
        self._point = point
        url = store.partition("?")[0]
        sync_url = url.replace("postgresql:", "postgresql+psycopg:")
        self.sessions = sessionmaker(create_engine(sync_url))
        self._async_url = sync_url.replace("sqlite:", "sqlite+aiosqlite:")
        event.listen(Session, "before_commit", lambda _: self.die("before_commit"))
        event.listen(Session, "after_commit", lambda _: self.die("after_commit"))

    def async_sessions(self) -> async_sessionmaker[AsyncSession]:
        return async_sessionmaker(create_async_engine(self._async_url))

    def die(self, point: str) -> None:
        if point == self._point:
            with suppress(FileExistsError), (self._folder / "killed").open("x"):
                os.kill(os.getpid(), signal.SIGKILL)

    def must_wait(self) -> bool:
        (self._folder / "entered").touch()
        return not (self._folder / "go").exists()

    async def pay_async(self, session: AsyncSession, order: dict[str, Any]) -> dict[str, Any]:
        while order.get("waits") and self.must_wait():  # noqa: ASYNC110 (the test creates a file)
            await asyncio.sleep(0.01)
        number = (await session.execute(INSERT, {"cents": order["cents"]})).scalar_one()
        self.die("in_block")
        return {"payment": number, "cents": order["cents"]}

    def pay(self, session: Session, order: dict[str, Any]) -> dict[str, Any]:
        while order.get("waits") and self.must_wait():
            time.sleep(0.01)
        number = session.execute(INSERT, {"cents": order["cents"]}).scalar_one()
        self.die("in_block")
        return {"payment": number, "cents": order["cents"]}


def fastapi_async(shop: Shop) -> Any:
    from collections.abc import AsyncIterator

    from fastapi import Body, Depends, FastAPI, Response

    from onceward.http.fastapi import Idempotency

    app, sessions = FastAPI(), shop.async_sessions()
    idem = Idempotency(AsyncOnce(shop.store), principal=Depends(lambda: "alice"), **SETTINGS)

    async def get_session() -> AsyncIterator[AsyncSession]:
        async with sessions() as session:
            yield session

    async def pay(order: dict[str, Any] = Body(), session: AsyncSession = Depends(get_session)) -> Response:  # noqa: B008 (as FastAPI wants it)
        async with idem.transaction(session) as tx:
            response = tx.respond(await shop.pay_async(session, order))
        shop.die("before_response")
        return response

    pay.__annotations__.update(order=dict[str, Any], session=AsyncSession, **{"return": Response})
    app.add_api_route(ROUTE, pay, methods=["POST"], status_code=201, dependencies=[idem.required])
    idem.protect(app)
    return app


def fastapi_sync(shop: Shop) -> Any:
    from fastapi import Body, FastAPI, Response

    from onceward.http.fastapi import Idempotency

    app = FastAPI()
    idem = Idempotency(AsyncOnce(shop.store), principal=lambda _: "alice", **SETTINGS)

    def pay(order: dict[str, Any] = Body()) -> Response:  # noqa: B008 (as FastAPI wants it)
        with shop.sessions() as session, idem.transaction(session) as tx:
            response = tx.respond(shop.pay(session, order))
        shop.die("before_response")
        return response

    pay.__annotations__.update(order=dict[str, Any], **{"return": Response})
    app.add_api_route(ROUTE, pay, methods=["POST"], status_code=201, dependencies=[idem.required])
    idem.protect(app)
    return app


def starlette(shop: Shop) -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from onceward.http.starlette import Idempotency

    sessions = shop.async_sessions()
    idem = Idempotency(AsyncOnce(shop.store), principal=lambda _: "alice", required=[ROUTE], **SETTINGS)

    async def pay(request: Request) -> Response:
        order = await request.json()
        async with sessions() as session, idem.transaction(session) as tx:
            response = tx.respond(await shop.pay_async(session, order), 201)
        shop.die("before_response")
        return response

    app = Starlette(routes=[Route(ROUTE, pay, methods=["POST"])])
    idem.protect(app)
    return app


def litestar(shop: Shop) -> Any:
    from litestar import Litestar, Response, post

    from onceward.http.litestar import Idempotency

    sessions = shop.async_sessions()
    idem = Idempotency(AsyncOnce(shop.store), principal=lambda _: "alice", required=[ROUTE], **SETTINGS)

    async def pay(data: dict[str, Any]) -> Response[bytes]:
        async with sessions() as session, idem.transaction(session) as tx:
            response = tx.respond(await shop.pay_async(session, data), 201)
        shop.die("before_response")
        return response

    pay.__annotations__.update(data=dict[str, Any], **{"return": Response[bytes]})
    return Litestar([post(ROUTE)(pay)], middleware=[idem.middleware])


def flask(shop: Shop) -> Any:
    from flask import Flask, Response, request

    from onceward.http.flask import Idempotency

    app = Flask(__name__)
    idem = Idempotency(Once(shop.store), principal=lambda: "alice", required=[ROUTE], **SETTINGS)

    def pay() -> Response:
        with shop.sessions() as session, idem.transaction(session) as tx:
            response = tx.respond(shop.pay(session, request.get_json()), 201)
        shop.die("before_response")
        return response

    app.add_url_rule(ROUTE, view_func=pay, methods=["POST"])
    idem.protect(app)
    return app


FRAMEWORKS = {
    "fastapi_async": fastapi_async,
    "fastapi_sync": fastapi_sync,
    "starlette": starlette,
    "litestar": litestar,
    "flask": flask,
}


def main(framework: str, store: str, folder: Path, point: str) -> None:
    app = FRAMEWORKS[framework](Shop(store, folder, point))
    listening = socket.create_server(("127.0.0.1", 0), backlog=100)
    port = listening.getsockname()[1]
    (folder / "port.new").write_text(str(port), encoding="ascii")
    (folder / "port.new").rename(folder / "port")
    if framework == "flask":
        from werkzeug.serving import make_server

        make_server("127.0.0.1", port, app, threaded=True, fd=listening.fileno()).serve_forever()
    else:
        import uvicorn

        config = uvicorn.Config(app, log_level="warning", server_header=False, date_header=False)
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
