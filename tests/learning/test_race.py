"""Eight different statements under one id, concurrently over real HTTP: one is stored, the others conflict."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from examples.learning.endpoint import PATH
from tests.learning.backends import server_of
from tests.learning.samples import statement, uuid

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = {1: 30, 2: 10}  # by the number of servers; the warehouses have their own race tests
CLIENTS = 8
HEADERS = {
    "Authorization": f"Basic {b64encode(b'learner:secret').decode()}",
    "X-Experience-API-Version": "2.0.0",
    "Content-Type": "application/json",
}


@contextmanager
def serving(folder: Path, server: str) -> Iterator[str]:
    command = [sys.executable, "-m", "examples.learning", "serve", "--port", "0", "--folder", str(folder), "--leashed"]
    with subprocess.Popen(
        [*command, "--warehouse", server], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield urlsplit(process.stdout.readline().strip()).netloc
        finally:
            process.kill()


@pytest.fixture(params=["duckdb", "postgres"])
def addresses(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """One server on files; two of them on PostgreSQL."""
    server = server_of(request)
    with ExitStack() as stack:
        yield [stack.enter_context(serving(tmp_path, server)) for _ in range(2 if server else 1)]


def ask(address: str, method: str, sent: dict[str, Any] | None = None, *, id: str) -> tuple[int, bytes]:
    connection = HTTPConnection(address, timeout=60)
    try:
        body = None if sent is None else json.dumps(sent)
        connection.request(method, f"{PATH}?statementId={id}", body, HEADERS)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.mission("D1")
def test_of_eight_different_statements_under_one_id_one_is_stored_in_each_of_30_rounds(addresses: list[str]) -> None:
    together = threading.Barrier(CLIENTS)

    def put(place: int, id: str, sent: dict[str, Any]) -> int:
        together.wait()
        return ask(addresses[place % len(addresses)], "PUT", sent, id=id)[0]

    with ThreadPoolExecutor(CLIENTS) as pool:
        for number in range(ROUNDS[len(addresses)]):
            id = uuid(f"round {number}")
            versions = [statement(f"round {number}", result={"response": str(n)}) for n in range(CLIENTS)]
            statuses = list(pool.map(put, range(CLIENTS), [id] * CLIENTS, versions))
            assert Counter(statuses) == {204: 1, 409: CLIENTS - 1}, f"round {number}"
            winner = versions[statuses.index(204)]
            for address in addresses:
                assert json.loads(ask(address, "GET", id=id)[1])["result"] == winner["result"], (
                    "the client that got 204 sent the stored one"
                )
            status, _ = ask(addresses[0], "PUT", winner, id=id)
            assert status == 204, "the winner may be put again"
