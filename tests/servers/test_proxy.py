"""The proxy that the tests of servers use applies its faults as documented."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.servers.proxy import (
    CUT_REPLY,
    HOLD,
    LOSE_REPLY,
    LOSE_REQUEST,
    RESET_REPLY,
    RESET_REQUEST,
    SWALLOW_REPLY,
    SWALLOW_REQUEST,
    Fault,
    Proxy,
)


class Echo:
    """Answers each line in capitals, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(100):
                self.asked.append(data)
                connection.sendall(data.upper())

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", echo.port) as started:
        yield started


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=10)


def ask(connection: socket.socket, text: bytes) -> bytes:
    connection.sendall(text)
    return connection.recv(100)


def test_exchanges_without_a_planned_fault_pass_and_are_counted(proxy: Proxy) -> None:
    with connected(proxy) as one, connected(proxy) as other:
        assert (ask(one, b"a"), ask(other, b"b"), ask(one, b"c")) == (b"A", b"B", b"C")
    assert (proxy.exchanges, proxy.connections, proxy.struck) == (3, 2, [])


@pytest.mark.parametrize(
    ("fault", "reaches", "sees"),
    [
        (LOSE_REQUEST, False, b""),
        (LOSE_REPLY, True, b""),
        (RESET_REQUEST, False, ConnectionResetError),
        (RESET_REPLY, True, ConnectionResetError),
        (CUT_REPLY, True, b"SEC"),
    ],
)
def test_the_planned_exchange_fails_as_planned_and_no_other(
    proxy: Proxy, echo: Echo, fault: Fault, reaches: bool, sees: bytes | type[Exception]
) -> None:
    proxy.next(fault, after=1)
    with connected(proxy) as one:
        assert ask(one, b"first") == b"FIRST"
        try:
            seen: bytes | type[Exception] = ask(one, b"second")
        except ConnectionResetError as error:
            seen = type(error)
        assert seen == sees
    with connected(proxy) as other:
        assert ask(other, b"third") == b"THIRD"
    assert echo.asked == ([b"first", b"second", b"third"] if reaches else [b"first", b"third"])
    assert [one.exchange for one in proxy.struck] == [2]


@pytest.mark.parametrize(("fault", "reaches"), [(SWALLOW_REQUEST, False), (SWALLOW_REPLY, True)])
def test_a_black_hole_sends_nothing_and_stays_open(proxy: Proxy, echo: Echo, fault: Fault, reaches: bool) -> None:
    proxy.next(fault)
    with connected(proxy) as one, connected(proxy) as other:
        one.settimeout(0.05)
        with pytest.raises(TimeoutError):
            ask(one, b"first")
        assert ask(other, b"second") == b"SECOND"
    assert echo.asked == ([b"first", b"second"] if reaches else [b"second"])


async def test_a_held_answer_arrives_when_it_is_released(proxy: Proxy) -> None:
    proxy.next(HOLD)
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"late")
    answer = asyncio.ensure_future(reader.read(100))
    await asyncio.to_thread(proxy.await_struck)
    assert not answer.done()
    proxy.release()
    assert await answer == b"LATE"
    writer.close()
    await writer.wait_closed()


def test_a_refused_client_may_connect_again_later(proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connected(proxy)
    proxy.accept()
    with connected(proxy) as one:
        assert ask(one, b"again") == b"AGAIN"
        proxy.reset_all()
        with pytest.raises(ConnectionResetError):
            one.recv(1)
