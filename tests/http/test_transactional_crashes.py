"""Rows, record and response commit together, on real servers that are killed: counted by plain SQL.

CI runs one case for each framework. `ONCEWARD_CRASH_MATRIX=all` runs every framework, database and point (`make soak`).
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.http.payment_server import FRAMEWORKS, POINTS, ROUTE
from tests.servers.postgres import Postgres, execute, new_database
from tests.servers.process import Server

ALL = os.environ.get("ONCEWARD_CRASH_MATRIX") == "all"
CASES = (
    [*itertools.product(FRAMEWORKS, ("postgres", "sqlite"), POINTS)]
    if ALL
    else [
        ("fastapi_async", "postgres", "after_commit"),
        ("fastapi_sync", "sqlite", "before_commit"),
        ("starlette", "sqlite", "before_response"),
        ("litestar", "sqlite", "in_block"),
        ("flask", "postgres", "after_commit"),
    ]
)
DUPLICATES = 20
PATIENCE = 120.0  # seconds: on a busy machine, a server takes long to start
COLUMNS = {"sqlite": "id INTEGER PRIMARY KEY", "postgres": "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"}


class Reply(NamedTuple):
    """A response as the client sees it. The replay's own header is not part of it."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Bank:
    """The database of one test, read without Onceward."""

    def __init__(self, url: str) -> None:
        self._path = url.removeprefix("sqlite:///") if url.startswith("sqlite") else ""
        self._url = url
        self.store = url if self._path else f"{url}?migrate=1"
        self.query(f"CREATE TABLE payments ({COLUMNS['sqlite' if self._path else 'postgres']}, cents INTEGER)")

    def query(self, statement: str) -> list[Any]:
        if not self._path:
            return execute(statement, url=self._url)
        connection = sqlite3.connect(self._path, timeout=PATIENCE)
        try:
            with connection:
                return connection.execute(statement).fetchall()
        finally:
            connection.close()

    def payments(self) -> list[Any]:
        return sorted(self.query("SELECT id, cents FROM payments"))


class PaymentApi:
    """The server, which may be killed, and its clients."""

    def __init__(self, framework: str, bank: Bank, folder: Path, point: str) -> None:
        command = [sys.executable, "-m", "tests.http.payment_server", framework, bank.store, str(folder), point]
        self.server = Server(command, 0, folder / "log")
        self.server.patience = PATIENCE
        self.folder = folder

    @property
    def port(self) -> int:
        return int((self.folder / "port").read_text(encoding="ascii"))

    def start(self) -> None:
        self.server.kill()  # waits for the process that has killed itself
        (self.folder / "port").unlink(missing_ok=True)
        self.server.start(lambda _: (self.folder / "port").exists())

    def ask(self, key: str, cents: int, **more: Any) -> Reply | None:
        """Send a payment. None: the server died."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        headers = {"Idempotency-Key": f'"{key}"', "Content-Type": "application/json", "Host": "bank"}
        try:
            connection.request("POST", ROUTE, json.dumps({"cents": cents, **more}), headers)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        own = ("idempotency-replayed", "server", "date", "connection")
        pairs = tuple(sorted((name.lower(), value) for name, value in response.getheaders() if name.lower() not in own))
        return Reply(response.status, pairs, body)

    def retry(self, key: str, cents: int, **more: Any) -> Reply:
        """Send the same request until it is answered, as a client does."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            reply = self.ask(key, cents, **more)
            if reply is not None and reply.status not in (409, 500, 503):
                return reply
            time.sleep(0.05)
        raise AssertionError(f"{key} was not answered: {(self.folder / 'log').read_text()[-3000:]}")

    def send_and_disconnect(self, key: str, cents: int) -> None:
        """Send a payment that waits in the endpoint, and close the connection while it waits."""
        body = json.dumps({"cents": cents, "waits": True})
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as client:
            head = f'POST {ROUTE} HTTP/1.1\r\nHost: bank\r\nIdempotency-Key: "{key}"\r\nContent-Type: application/json'
            client.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            _wait_until((self.folder / "entered").exists)
        (self.folder / "go").touch()


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


MakeApi = Callable[..., PaymentApi]


@pytest.fixture
def make_api(tmp_path: Path) -> Iterator[MakeApi]:
    made: list[PaymentApi] = []

    def make(framework: str, bank: Bank, point: str) -> PaymentApi:
        made.append(PaymentApi(framework, bank, tmp_path, point))
        made[-1].start()
        return made[-1]

    yield make
    for api in made:
        api.server.kill()


@pytest.fixture
def make_bank(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Bank]:
    def make(database: str) -> Bank:
        if database == "sqlite":
            return Bank(f"sqlite:///{tmp_path}/bank.db")
        return Bank(new_database(request.getfixturevalue("postgres"), f"bank_{os.getpid()}"))

    return make


@pytest.mark.finding("N4")
@pytest.mark.fault("F30")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("framework", "database", "point"), CASES)
def test_a_payment_is_one_row_and_one_response_wherever_its_server_dies(
    framework: str, database: str, point: str, make_api: MakeApi, make_bank: Callable[[str], Bank]
) -> None:
    bank = make_bank(database)
    api = make_api(framework, bank, point)
    assert api.ask("killed", 500) is None, "the server has killed itself"
    assert (api.folder / "killed").exists()
    assert len(bank.payments()) == (1 if point in ("after_commit", "before_response") else 0)
    api.start()
    first = api.retry("killed", 500)
    assert first.status == 201
    assert api.retry("killed", 500) == first
    [(number, cents)] = bank.payments()
    assert json.loads(first.body) == {"payment": number, "cents": cents}

    with ThreadPoolExecutor(DUPLICATES) as pool:
        replies = [*pool.map(lambda _: api.ask("crowd", 600), range(DUPLICATES))]
    answered = [reply for reply in replies if reply is not None and reply.status != 409]
    assert len(set(answered)) == 1, replies
    assert answered[0].status == 201
    assert [cents for _, cents in bank.payments()] == [500, 600]

    api.send_and_disconnect("left", 700)
    left = api.retry("left", 700, waits=True)
    assert left.status == 201
    assert [cents for _, cents in bank.payments()] == [500, 600, 700]


@pytest.mark.skipif(not ALL, reason="part of the soak: ONCEWARD_CRASH_MATRIX=all")
@pytest.mark.finding("N4")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_restart_of_postgresql_under_load_loses_and_repeats_no_payment(
    framework: str, make_api: MakeApi, own_postgres: Postgres
) -> None:
    bank = Bank(own_postgres.url)
    api = make_api(framework, bank, "never")
    done: list[tuple[int, Reply]] = []
    stop = threading.Event()
    numbers = itertools.count(1)

    def pay() -> None:
        while not stop.is_set():
            cents = next(numbers)
            done.append((cents, api.retry(f"p{cents}", cents)))

    def enough(payments: int) -> bool:
        return len(done) >= payments or any(one.done() for one in paying)

    with ThreadPoolExecutor(8) as pool:
        paying = [pool.submit(pay) for _ in range(8)]
        try:
            for payments in (50, 150, 250):
                _wait_until(partial(enough, payments))
                own_postgres.kill()
                own_postgres.start()
        finally:
            stop.set()
        for one in paying:
            one.result(PATIENCE)
    rows = {cents: number for number, cents in bank.payments()}
    assert len(bank.payments()) == len(rows) == len(done)
    for cents, reply in done:
        assert json.loads(reply.body) == {"payment": rows[cents], "cents": cents}
        assert api.retry(f"p{cents}", cents) == reply
