"""`idem.transaction(session)`: what is committed, what is rolled back, and which response is sent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import NullPool
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from onceward import AsyncOnce, ConfigurationError, RecordState, current_claim
from onceward.http.starlette import Idempotency, Transaction
from onceward.runtime.threads import run
from tests.http.web_calls import WebClient, same_response
from tests.sites import Answer, Asked, Site

INSERT = text("INSERT INTO payments (cents) VALUES (500)")
Handler = Callable[[Any, Transaction], Any]


class Stop(Exception):
    pass


class Shop:
    """A Starlette application whose endpoint runs `handler(session, tx)` in the block, sync or async."""

    def __init__(self, folder: Path, *, is_async: bool, store: str = "", **settings: Any) -> None:
        self.url = f"sqlite:///{folder}/bank.db"
        self.engine = create_engine(self.url, poolclass=NullPool)
        self.sessions = sessionmaker(self.engine)
        self.is_async = is_async
        with self.sessions.begin() as session:
            session.execute(text("CREATE TABLE payments (id INTEGER PRIMARY KEY, cents INTEGER)"))
        self.async_engine = create_async_engine(f"sqlite+aiosqlite:///{folder}/bank.db", poolclass=NullPool)
        self.async_sessions = async_sessionmaker(self.async_engine)
        self.once = AsyncOnce(store or self.url)
        self.idem = Idempotency(
            self.once, principal=lambda _: "alice", required=["/pay"], optional=["/donate"], **settings
        )
        self.errors: list[BaseException] = []
        self.handler: Handler = lambda _session, tx: tx.respond({"paid": 500}, 201)
        self.after: Callable[[], None] = lambda: None
        endpoint = self._pay_async if is_async else self._pay
        paths = ("/pay", "/donate", "/other")
        self.app = Starlette(
            routes=[Route(path, endpoint, methods=["POST"]) for path in paths],
            middleware=[Middleware(StampedResponses)],
        )
        self.idem.protect(self.app)
        self.client = WebClient(self.app)

    async def _pay_async(self, _request: Request) -> Response:
        try:
            async with self.async_sessions() as session, self.idem.transaction(session) as tx:
                await session.execute(INSERT)
                response = self.handler(session, tx)
                if hasattr(response, "__await__"):
                    response = await response
            self.after()
        except Exception as error:
            self.errors.append(error)
            raise
        return response  # type: ignore[no-any-return]  # of the handler

    def _pay(self, _request: Request) -> Response:
        try:
            with self.sessions() as session, self.idem.transaction(session) as tx:
                session.execute(INSERT)
                response = self.handler(session, tx)
            self.after()
        except Exception as error:
            self.errors.append(error)
            raise
        return response  # type: ignore[no-any-return]  # of the handler

    def rows(self) -> int:
        with self.sessions() as session:
            return int(session.execute(text("SELECT count(*) FROM payments")).scalar_one())

    def state(self) -> RecordState | None:
        entry = self.client.wait(self.once.using(tenant="alice").read("k1", name="http"))
        return None if entry is None else entry.state

    def close(self) -> None:
        self.client.wait(self.once.close())
        self.client.wait(self.async_engine.dispose())
        self.client.close()
        self.engine.dispose()


class StampedResponses:
    """A middleware that adds a header to every response."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def stamped(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"x-stamp", b"1")]}
            await send(message)

        await self._app(scope, receive, stamped)


MakeShop = Callable[..., Shop]


@pytest.fixture(params=["sync", "async"])
def make_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeShop]:
    made: list[Shop] = []

    def make(**settings: Any) -> Shop:
        made.append(Shop(tmp_path, is_async=request.param == "async", **settings))
        return made[-1]

    yield make
    for shop in made:
        shop.close()


@pytest.fixture
def shop(make_shop: MakeShop) -> Shop:
    return make_shop()


@pytest.mark.finding("N4")
def test_the_retry_gets_the_committed_response_byte_for_byte(shop: Shop) -> None:
    headers = {"Location": "/payments/1", "X-Tag": "ü", "Set-Cookie": "a=b"}
    shop.handler = lambda _, tx: tx.respond(Response(b"\x00\xff", 201, headers, "application/x-bytes"))
    first, second = shop.client.post("/pay"), shop.client.post("/pay")
    assert first.headers.pop("set-cookie") == "a=b", "only the first client gets it"
    assert second.headers["idempotency-replayed"] == "true"
    assert same_response(first, second)
    assert (first.status_code, first.content, first.headers["x-stamp"]) == (201, b"\x00\xff", "1")
    assert (shop.rows(), shop.state()) == (1, RecordState.COMPLETED)


@pytest.mark.finding("N4")
def test_an_exception_rolls_back_and_the_next_attempt_runs_again(shop: Shop) -> None:
    def fails(_session: Any, tx: Transaction) -> Any:
        tx.respond({"paid": 500}, 201)
        raise Stop

    good, shop.handler = shop.handler, fails
    assert shop.client.post("/pay").status_code == 500
    assert shop.rows() == 0
    shop.handler = good
    assert shop.client.post("/pay").status_code == 201
    assert shop.rows() == 1


@pytest.mark.finding("N4")
def test_a_commit_inside_the_block_is_refused_and_commits_nothing(shop: Shop) -> None:
    def commits(session: Any, tx: Transaction) -> Any:
        if not shop.is_async:
            session.commit()
            return tx.respond()

        async def commit() -> Response:
            await session.commit()
            return tx.respond()

        return commit()

    shop.handler = commits
    assert shop.client.post("/pay").status_code == 500
    assert "session.commit() was called inside" in str(shop.errors[0])
    assert shop.rows() == 0


def test_a_savepoint_inside_the_block_is_allowed(shop: Shop) -> None:
    def nested(session: Any, tx: Transaction) -> Any:
        if not shop.is_async:
            with session.begin_nested():
                session.execute(INSERT)
            return tx.respond()

        async def work() -> Response:
            async with session.begin_nested():
                await session.execute(INSERT)
            return tx.respond()

        return work()

    shop.handler = nested
    assert shop.client.post("/pay").status_code == 200
    assert shop.rows() == 2


@pytest.mark.finding("N4")
@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (lambda _, tx: Response(), "without a response"),
        (lambda _, tx: tx.respond({}, 503), "status 503 is not stored"),
        (lambda _, tx: tx.respond("x" * 2_000), "max_response"),
        (lambda _, tx: tx.respond(Response(headers={"x": "a\nb"})), "line break"),
        (lambda _, tx: tx.respond(StreamingResponse(iter([b""]))), "no body before it is sent"),
    ],
)
def test_what_cannot_be_stored_is_not_committed(make_shop: MakeShop, handler: Handler, message: str) -> None:
    shop = make_shop(max_response=1_000)
    shop.handler = handler
    assert shop.client.post("/pay").status_code == 500
    assert message in str(shop.errors[0])
    assert shop.rows() == 0
    assert shop.state() is RecordState.FAILED


@pytest.mark.finding("N4")
def test_an_endpoint_that_fails_after_the_commit_still_answers_what_was_committed(shop: Shop) -> None:
    def fail() -> None:
        raise Stop

    shop.after = fail
    first, second = shop.client.post("/pay"), shop.client.post("/pay")
    assert (first.status_code, first.json()) == (201, {"paid": 500})
    assert same_response(first, second)
    assert (shop.rows(), len(shop.errors)) == (1, 1)


@pytest.mark.finding("N4")
def test_a_commit_whose_reply_is_lost_is_found_committed(shop: Shop) -> None:
    def lose_reply(_session: Session) -> None:
        raise Stop

    event.listen(Session, "after_commit", lose_reply, once=True)
    first, second = shop.client.post("/pay"), shop.client.post("/pay")
    assert first.status_code == 201
    assert same_response(first, second)
    assert shop.rows() == 1


@pytest.mark.finding("N4")
def test_a_commit_that_fails_leaves_neither_row_nor_response(shop: Shop) -> None:
    def refuse(_session: Session) -> None:
        raise Stop

    event.listen(Session, "before_commit", refuse, once=True)
    assert shop.client.post("/pay").status_code == 500
    assert shop.rows() == 0
    assert shop.client.post("/pay").status_code == 201
    assert shop.rows() == 1


def test_without_a_key_on_an_optional_route_the_block_is_a_plain_transaction(shop: Shop) -> None:
    assert [shop.client.post("/donate", key=None).status_code for _ in range(2)] == [201, 201]
    assert (shop.rows(), shop.state()) == (2, None)


def test_a_route_without_middleware_is_refused_before_anything_is_written(shop: Shop) -> None:
    assert shop.client.post("/other").status_code == 500
    assert "no idempotency middleware handles this request" in str(shop.errors[0])
    assert shop.rows() == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"after_crash": "park"}, "must be 'rerun'"), ({"store": "memory://"}, "cannot join your transaction")],
)
def test_a_claim_that_cannot_be_completed_in_the_transaction_is_refused_first(
    make_shop: MakeShop, settings: dict[str, Any], message: str
) -> None:
    shop = make_shop(**settings)
    assert shop.client.post("/pay").status_code == 500
    assert message in str(shop.errors[0])
    assert shop.rows() == 0


def test_a_session_of_the_other_kind_names_the_right_block() -> None:
    with pytest.raises(ConfigurationError, match="this Session needs the other kind of block"):
        run(Transaction(Session()).__aenter__())
    with pytest.raises(ConfigurationError, match="this AsyncSession needs the other kind of block"):
        Transaction(AsyncSession()).__enter__()
    with pytest.raises(ConfigurationError, match="cannot commit a str"):
        Transaction("session").__enter__()


def test_a_header_added_after_the_commit_is_dropped_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A middleware inside of ours, which `protect` does not allow."""
    from onceward.http.asgi import IdempotencyMiddleware

    shop = Shop(tmp_path, is_async=True)
    inner = StampedResponses(shop.app.router)
    guarded = IdempotencyMiddleware(inner, shop.once, principal=lambda _: "alice", required=["/pay"])
    client = WebClient(guarded)
    try:
        with caplog.at_level(logging.WARNING, "onceward.http"):
            first, second = client.post("/pay"), client.post("/pay")
    finally:
        client.wait(shop.once.close())
        client.wait(shop.async_engine.dispose())
        client.close()
        shop.client.close()
        shop.engine.dispose()
    assert same_response(first, second)
    assert "x-stamp" not in first.headers
    assert "x-stamp was added after" in caplog.text


@pytest.mark.finding("N4")
def test_completing_the_claim_of_a_request_by_hand_is_refused(site: Site) -> None:
    def completes(asked: Asked) -> Answer:
        with pytest.raises(ConfigurationError, match="the idempotency middleware completes this claim itself"):
            current_claim().complete("by hand")
        with pytest.raises(ConfigurationError, match=r"idempotency\.transaction\(session\)"):
            current_claim().complete_in(None)
        return 201, [], b"done"

    site.handler = completes
    assert [site.ask().status for _ in range(2)] == [201, 201]
    assert site.ask().replayed
