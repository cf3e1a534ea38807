"""`idem.transaction(session)` with a session that is used in unusual ways: rows and response stay together."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import AsyncOnce, ConfigurationError, Once
from onceward.http.session_guard import check_autocommit
from onceward.http.starlette import Idempotency, Transaction
from tests.http.web_calls import WebClient

INSERT = text("INSERT INTO payments (cents) VALUES (500)")
Handler = Callable[[Session, Transaction], Response]


class Declined(Exception):
    pass


class Bank:
    """An endpoint that runs `handler(session, tx)` as the only code in the block, with a sync or an async session."""

    handler: Handler

    def __init__(self, folder: Path, *, is_async: bool, **options: Any) -> None:
        self.path = folder / "bank.db"
        with sqlite3.connect(self.path) as connection:
            connection.execute("CREATE TABLE payments (id INTEGER PRIMARY KEY, cents INTEGER)")
        connection.close()
        self.engine = create_engine(f"sqlite:///{self.path}", poolclass=NullPool, **options)
        self.async_engine = create_async_engine(f"sqlite+aiosqlite:///{self.path}", poolclass=NullPool, **options)
        self.once = AsyncOnce(f"sqlite:///{self.path}")
        self.idem = Idempotency(self.once, principal=lambda _: "alice", required=["/pay"])
        self.errors: list[Exception] = []
        app = Starlette(routes=[Route("/pay", self._pay_async if is_async else self._pay, methods=["POST"])])
        self.idem.protect(app)
        self.client = WebClient(app)

    async def _pay_async(self, _request: Request) -> Response:
        try:
            async with AsyncSession(self.async_engine) as session, self.idem.transaction(session) as tx:
                return await session.run_sync(self.handler, tx)
        except Exception as error:
            self.errors.append(error)
            raise

    def _pay(self, _request: Request) -> Response:
        try:
            with Session(self.engine) as session, self.idem.transaction(session) as tx:
                return self.handler(session, tx)
        except Exception as error:
            self.errors.append(error)
            raise

    def post(self, handler: Handler) -> int:
        self.handler = handler
        status: int = self.client.post("/pay").status_code
        return status

    def rows(self) -> int:
        connection = sqlite3.connect(self.path)
        try:
            return int(connection.execute("SELECT count(*) FROM payments").fetchone()[0])
        finally:
            connection.close()

    def close(self) -> None:
        self.client.wait(self.once.close())
        self.client.wait(self.async_engine.dispose())
        self.client.close()
        self.engine.dispose()


MakeBank = Callable[..., Bank]


@pytest.fixture(params=["sync", "async"])
def make_bank(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeBank]:
    made: list[Bank] = []

    def make(**options: Any) -> Bank:
        made.append(Bank(tmp_path, is_async=request.param == "async", **options))
        return made[-1]

    yield make
    for bank in made:
        bank.close()


@pytest.fixture
def bank(make_bank: MakeBank) -> Bank:
    return make_bank()


def pays(session: Session, tx: Transaction) -> Response:
    session.execute(INSERT)
    return tx.respond({"paid": 500}, 201)


def fails_after_a_savepoint(session: Session, _tx: Transaction) -> Response:
    with session.begin_nested():
        session.execute(INSERT)
    raise Declined


@pytest.mark.finding("N4")
def test_a_savepoint_that_begins_the_block_is_rolled_back_with_it(bank: Bank) -> None:
    assert bank.post(fails_after_a_savepoint) == 500
    assert bank.rows() == 0, "SQLite would commit the outermost savepoint"
    assert bank.post(pays) == 201
    assert bank.rows() == 1


def rolls_back(session: Session, tx: Transaction) -> Response:
    response = pays(session, tx)
    session.rollback()
    return response


def closes(session: Session, tx: Transaction) -> Response:
    response = pays(session, tx)
    session.close()
    return response


def rolls_back_the_savepoint(session: Session, tx: Transaction) -> Response:
    with session.begin_nested() as savepoint:
        response = pays(session, tx)
        savepoint.rollback()
    return response


@pytest.mark.finding("N4")
@pytest.mark.parametrize("handler", [rolls_back, closes, rolls_back_the_savepoint])
def test_a_response_whose_rows_were_rolled_back_is_neither_sent_nor_stored(bank: Bank, handler: Handler) -> None:
    assert bank.post(handler) == 500
    assert "rolled back after tx.respond" in str(bank.errors[0])
    assert bank.post(pays) == 201, "the key is free"
    assert bank.rows() == 1


def declines_after_a_conflict(session: Session, tx: Transaction) -> Response:
    session.execute(INSERT)
    session.rollback()
    return tx.respond({"declined": True}, 402)


def logs_in_a_savepoint(session: Session, tx: Transaction) -> Response:
    response = pays(session, tx)
    with session.begin_nested() as savepoint:
        session.execute(INSERT)
        savepoint.rollback()
    return response


@pytest.mark.parametrize(
    ("handler", "status", "rows"), [(declines_after_a_conflict, 402, 0), (logs_in_a_savepoint, 201, 1)]
)
def test_a_rollback_of_other_rows_keeps_the_response(bank: Bank, handler: Handler, status: int, rows: int) -> None:
    assert [bank.post(handler), bank.post(handler)] == [status, status]
    assert bank.rows() == rows


@pytest.mark.finding("N4")
def test_a_session_in_autocommit_mode_is_refused_before_it_writes(make_bank: MakeBank) -> None:
    bank = make_bank(isolation_level="AUTOCOMMIT")
    assert bank.post(pays) == 500
    assert "autocommit mode" in str(bank.errors[0])
    assert bank.rows() == 0


def test_a_plain_connection_in_autocommit_mode_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "bank.db", isolation_level=None)
    with pytest.raises(ConfigurationError, match="autocommit mode"):
        check_autocommit(connection)
    connection.execute("BEGIN")
    check_autocommit(connection)
    connection.close()


def opens_a_second_block(session: Session, tx: Transaction) -> Response:
    session.execute(INSERT)
    with Idempotency.transaction(None, session) as inner:  # type: ignore[arg-type]  # the method does not use its object
        inner.respond({"inner": True})
    return tx.respond({"outer": True})


def test_a_block_inside_the_block_commits_nothing(bank: Bank) -> None:
    assert bank.post(opens_a_second_block) == 500
    assert bank.rows() == 0


@pytest.mark.finding("N4")
def test_a_response_without_a_body_is_committed_without_one(bank: Bank) -> None:
    def no_content(session: Session, tx: Transaction) -> Response:
        session.execute(INSERT)
        return tx.respond(status_code=204)

    bank.handler = no_content
    first, second = bank.client.post("/pay"), bank.client.post("/pay")
    assert [(each.status_code, each.content) for each in (first, second)] == [(204, b"")] * 2
    assert bank.rows() == 1


def test_a_body_that_no_server_would_send_is_refused(bank: Bank) -> None:
    def content(session: Session, tx: Transaction) -> Response:
        session.execute(INSERT)
        return tx.respond({"paid": 500}, 204)

    assert bank.post(content) == 500
    assert "has no body" in str(bank.errors[0])
    assert bank.rows() == 0


@pytest.mark.finding("N3")
def test_records_in_a_savepoint_are_rolled_back_with_the_transaction_around_it(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/bank.db", poolclass=NullPool)
    with Once(f"sqlite:///{tmp_path}/bank.db") as once:
        once.migrate()
        with Session(engine) as session, once.within(session) as tx:
            with session.begin_nested():
                tx.run("order:7", lambda: "paid")
            session.rollback()
        assert once.read("order:7") is None
    engine.dispose()


@pytest.mark.finding("N3")
async def test_records_in_a_savepoint_of_an_async_session_are_rolled_back_too(tmp_path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/bank.db", poolclass=NullPool)

    async def pay() -> str:
        return "paid"

    async with AsyncOnce(f"sqlite:///{tmp_path}/bank.db") as once:
        await once.migrate()
        async with AsyncSession(engine) as session, once.within(session) as tx:
            async with session.begin_nested():
                await tx.run("order:7", pay)
            await session.rollback()
        assert await once.read("order:7") is None
    await engine.dispose()
