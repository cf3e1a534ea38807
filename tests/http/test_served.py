"""A real server with real clients: many duplicates, kills, large uploads, and streams that pass byte for byte."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from websockets.sync.client import connect

from onceward import Once
from onceward.http.asgi import IdempotencyMiddleware
from tests.endpoints.helpers import asgi_served, wait_until
from tests.servers.process import Server, free_port

ROOT = Path(__file__).resolve().parents[2]
CROWD = 500
MEGABYTE = 1_000_000
UPLOAD = 200
KEY = {"Idempotency-Key": '"k1"', "Host": "x"}
Serve = Callable[..., Server]


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    started: list[Server] = []

    def start(**settings: Any) -> Server:
        port = free_port()
        place = f"sqlite:///{tmp_path}/once.db?synchronous=NORMAL"
        command = [sys.executable, "-m", "tests.http.serving", str(port), str(tmp_path), place, json.dumps(settings)]
        server = Server(command, port, tmp_path / "log")
        started.append(server)
        server.start(answers)
        return server

    yield start
    for server in started:
        server.kill()


def effects(folder: Path) -> list[str]:
    return (folder / "effects").read_text(encoding="utf-8").split()


def until_effects(folder: Path) -> None:
    while not (folder / "effects").exists() or not effects(folder):
        time.sleep(0.01)


class Told(NamedTuple):
    """One of the answers."""

    status: int
    head: str
    body: str


async def crowd(port: int) -> list[Told]:
    """Send the same request from many clients concurrently, each on its own connection."""
    links = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(CROWD)))
    request = (
        b'POST /pay HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\nIdempotency-Key: "k1"\r\n\r\n{}'
    )

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Told:
        writer.write(request)
        head, _, body = (await reader.read(-1)).decode().partition("\r\n\r\n")
        writer.close()
        return Told(int(head.split()[1]), head.lower(), body)

    return await asyncio.gather(*(ask(*link) for link in links))


@pytest.mark.fault("F78", "F69")
@pytest.mark.rival(18)
def test_of_500_concurrent_duplicates_one_runs_and_all_waiting_clients_get_its_answer(
    serve: Serve, tmp_path: Path
) -> None:
    replies = asyncio.run(crowd(serve(wait="50s").port))
    assert {(reply.status, reply.body) for reply in replies} == {(201, "payment 1")}
    assert sum("idempotency-replayed: true" in reply.head for reply in replies) == CROWD - 1
    assert effects(tmp_path) == ["paid"]


@pytest.mark.fault("F78")
@pytest.mark.rival(18)
def test_of_500_concurrent_duplicates_that_do_not_wait_each_gets_the_answer_or_a_retry_after(
    serve: Serve, tmp_path: Path
) -> None:
    replies = asyncio.run(crowd(serve().port))
    for reply in replies:
        answered = (reply.status, reply.body) == (201, "payment 1")
        assert answered or (reply.status == 409 and "\r\nretry-after: 1\r\n" in reply.head), reply
    assert effects(tmp_path) == ["paid"]


@pytest.mark.fault("F30")
def test_a_server_that_is_killed_in_the_middle_of_a_request_leaves_a_retry_that_is_right(
    serve: Serve, tmp_path: Path
) -> None:
    first = serve(lease="2s")
    client = http.client.HTTPConnection("127.0.0.1", first.port, timeout=60)
    client.request("POST", "/hang", b"{}", KEY)
    until_effects(tmp_path)
    first.kill()
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        client.getresponse()
    second = serve(lease="2s", wait="50s")
    for replayed in (None, "true"):
        reply = httpx.post(f"http://127.0.0.1:{second.port}/hang", content=b"{}", headers=KEY, timeout=60)
        assert (reply.status_code, reply.text) == (201, "done")
        assert reply.headers.get("idempotency-replayed") == replayed
    keys = effects(tmp_path)
    assert len(keys) == 2
    assert keys[0] == keys[1], "the outgoing calls of both attempts have one key, so that the remote runs them once"


@pytest.mark.fault("F76")
def test_a_client_that_hangs_up_under_a_real_server_finds_the_work_done(serve: Serve, tmp_path: Path) -> None:
    server = serve(wait="50s")
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b'POST /pay HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nIdempotency-Key: "k1"\r\n\r\n{}')
        until_effects(tmp_path)
    reply = httpx.post(f"http://127.0.0.1:{server.port}/pay", content=b"{}", headers=KEY, timeout=60)
    assert (reply.status_code, reply.text) == (201, "payment 1")
    assert effects(tmp_path) == ["paid"]


def test_an_upload_of_200_mb_takes_less_than_60_mb_of_memory(serve: Serve, tmp_path: Path) -> None:
    server = serve(max_body=300 * MEGABYTE)
    url = f"http://127.0.0.1:{server.port}"
    piece = bytes(range(250)) * (MEGABYTE // 250)
    digest = hashlib.sha256()
    for _ in range(UPLOAD):
        digest.update(piece)
    with httpx.Client(base_url=url, timeout=60) as client:
        client.post("/upload", content=b"warm", headers={"Idempotency-Key": '"warm"'})
        before = int(client.get("/memory").text)
        reply = client.post("/upload", content=(piece for _ in range(UPLOAD)), headers=KEY)
        grown = int(client.get("/memory").text) - before
    assert reply.text == f"{UPLOAD * MEGABYTE} {digest.hexdigest()}"
    assert grown < 60_000, f"{grown} kB"
    assert effects(tmp_path) == ["uploaded"] * 2


def raw(port: int, request: bytes) -> bytes:
    """Return all bytes that the server sends in response to a request."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(request)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.rival(15)
@pytest.mark.fault("F77")
@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"POST", b"PUT"])
@pytest.mark.parametrize("key", [b"", b'Idempotency-Key: "k"\r\n'], ids=["no key", "key"])
def test_streams_on_other_routes_pass_byte_for_byte(shared: Server, method: bytes, key: bytes) -> None:
    rest = b" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n" + key + b"\r\n"
    bare, guarded = (raw(shared.port, method + path + rest) for path in (b" /bare/stream", b" /stream"))
    assert guarded == bare
    assert (b"19\n" * 100 in guarded) is (method != b"HEAD")


@pytest.mark.rival(15)
@pytest.mark.fault("F77")
def test_server_sent_events_arrive_one_by_one_and_end_with_their_client(shared: Server, shared_folder: Path) -> None:
    url = f"http://127.0.0.1:{shared.port}/events"
    with httpx.stream("GET", url, headers=KEY, timeout=60) as reply:
        lines = reply.iter_lines()
        assert [next(lines) for _ in range(3)] == ["data: 0", "", "data: 1"]
    until_effects(shared_folder)
    assert effects(shared_folder) == ["left"]


@pytest.mark.fault("F77")
def test_websockets_pass(shared: Server) -> None:
    with connect(
        f"ws://127.0.0.1:{shared.port}/socket", additional_headers={"Idempotency-Key": KEY["Idempotency-Key"]}
    ) as websocket:
        for text in ("abc", "x" * 10_000 + "y"):
            websocket.send(text)
            assert websocket.recv(timeout=60) == text[::-1]


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def shared(shared_folder: Path) -> Iterator[Server]:
    """One server for tests that leave nothing behind."""
    port = free_port()
    command = [sys.executable, "-m", "tests.http.serving", str(port), str(shared_folder), "memory://"]
    server = Server(command, port, shared_folder / "log")
    server.start(answers)
    yield server
    server.kill()


@pytest.mark.fault("F76")
def test_a_client_that_takes_nothing_of_a_stream_does_not_keep_its_key() -> None:
    """It stays connected and reads nothing: soon the buffers of both sides are full, and then everything waits."""

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(64):
            await send({"type": "http.response.body", "body": bytes(MEGABYTE), "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    with Once("memory://") as once:
        chosen: Any = {"principal": lambda scope: "alice", "optional": ["*"], "stall_timeout": "200ms"}
        with asgi_served(IdempotencyMiddleware(stream, once.aio, **chosen)) as url:
            address = httpx.URL(url)
            with socket.create_connection((address.host, address.port or 0)) as line:
                line.sendall(b'POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: "k1"\r\nContent-Length: 0\r\n\r\n')
                wait_until(lambda: once.counts.get("completed"), "the work was finished and recorded")
            again = httpx.post(url, headers=KEY)
    assert (again.status_code, again.json()["code"]) == (410, "result_not_stored"), (
        "and an answer of this size is not kept"
    )
