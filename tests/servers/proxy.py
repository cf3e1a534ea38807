"""A TCP proxy that breaks connections on purpose, by the number of the exchange and never by the time.

    with Proxy("127.0.0.1", port) as proxy:
        proxy.next(LOSE_REPLY)            # what happens to the next exchange
        proxy.next(HOLD, after=3)         # ... and to the fourth from now on
        … use 127.0.0.1:proxy.port …
        proxy.release()                   # forwards the answers that were held

An exchange begins when a client sends its first bytes, or the first bytes after a reply: one request and its reply, or
several if they are pipelined. Exchanges are counted over all connections, in the order in which they begin. The proxy
runs in its own threads, so blocking and async tests can use it.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from enum import Enum, auto
from types import TracebackType
from typing import NamedTuple, Self

PATIENCE = 30.0  # seconds until a held answer that a test never releases is given up
CHUNK = 1 << 16


class Fault(Enum):
    """What may happen to one exchange."""

    LOSE_REQUEST = auto()
    """The server never sees it, and the client finds the connection closed."""
    LOSE_REPLY = auto()
    """The server does it and answers; the client finds the connection closed instead."""
    RESET_REQUEST = auto()
    """As LOSE_REQUEST, with a reset instead of an orderly end."""
    RESET_REPLY = auto()
    """As LOSE_REPLY, with a reset instead of an orderly end."""
    CUT_REPLY = auto()
    """The client gets only the first bytes of the answer (`proxy.kept`), then the end."""
    SWALLOW_REQUEST = auto()
    """A black hole: neither side gets anything, and the connection stays open."""
    SWALLOW_REPLY = auto()
    """The server does it, and the client gets no answer; the connection stays open."""
    HOLD = auto()
    """The answer is forwarded when the test calls `release()`."""


LOSE_REQUEST, LOSE_REPLY, RESET_REQUEST, RESET_REPLY = (
    Fault.LOSE_REQUEST,
    Fault.LOSE_REPLY,
    Fault.RESET_REQUEST,
    Fault.RESET_REPLY,
)
CUT_REPLY, SWALLOW_REQUEST, SWALLOW_REPLY, HOLD = (
    Fault.CUT_REPLY,
    Fault.SWALLOW_REQUEST,
    Fault.SWALLOW_REPLY,
    Fault.HOLD,
)

ENDS_BEFORE = {Fault.LOSE_REQUEST, Fault.RESET_REQUEST}
ENDS_AFTER = {Fault.LOSE_REPLY, Fault.RESET_REPLY}
RESETS = {Fault.RESET_REQUEST, Fault.RESET_REPLY}


class Struck(NamedTuple):
    """A fault, and the exchange that it happened to."""

    exchange: int
    fault: Fault


class Proxy:
    """Listens on a free port of 127.0.0.1 and forwards everything to one server, except for planned faults."""

    def __init__(self, host: str, port: int, *, kept: int = 3) -> None:
        self._server = (host, port)
        self.kept = kept
        self.exchanges = 0
        self.struck: list[Struck] = []
        self.connections = 0
        self._plan: dict[int, Fault] = {}
        self._always: Fault | None = None
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._met = threading.Condition(self._lock)
        self._pairs: set[Pair] = set()
        self._listener: socket.socket | None = None
        self.port = 0
        self.accept()

    # ── called by the test ──────────────────────────────────────────────────────────────────────────────────────

    def next(self, fault: Fault, *, after: int = 0, times: int = 1) -> None:
        """Plan this fault for the next exchange, or for the one `after` that many others."""
        with self._lock:
            first = self.exchanges + after + 1
            self._plan.update(dict.fromkeys(range(first, first + times), fault))

    def always(self, fault: Fault | None) -> None:
        """Apply this fault to every exchange that begins from now on; None: to no more."""
        with self._lock:
            self._always = fault

    def release(self) -> None:
        """Forward the answers that are held, and hold no more."""
        self._released.set()

    def hold_again(self) -> None:
        self._released.clear()

    def await_struck(self, number: int = 1) -> None:
        """Wait until so many faults have happened."""
        with self._met:
            assert self._met.wait_for(lambda: len(self.struck) >= number, PATIENCE), f"only {self.struck} happened"

    def reset_all(self) -> None:
        """End every open connection with a reset."""
        with self._lock:
            pairs = tuple(self._pairs)
        for pair in pairs:
            pair.end(reset=True)

    def refuse(self) -> None:
        """Refuse new connections, as if no server listened; open connections stay open."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            listener.close()

    def accept(self) -> None:
        """Listen (again), on the same port as before."""
        listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._serve, args=(listener,), name="proxy", daemon=True).start()

    def point_to(self, port: int) -> None:
        """Send new connections to another server of the same host, as after a failover."""
        self._server = (self._server[0], port)

    def close(self) -> None:
        self.refuse()
        self.release()
        self.reset_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ── internals ───────────────────────────────────────────────────────────────────────────────────────────────

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server, timeout=PATIENCE)
            except OSError:  # the server is down: so is this connection
                abort(client)
                continue
            self.connections += 1
            pair = Pair(self, client, server)
            with self._lock:
                self._pairs.add(pair)
            threading.Thread(target=pair.run, name="proxied", daemon=True).start()

    def begun(self) -> Fault | None:
        """Count a new exchange, and return its planned fault."""
        with self._met:
            self.exchanges += 1
            fault = self._plan.pop(self.exchanges, self._always)
            if fault is not None:
                self.struck.append(Struck(self.exchanges, fault))
                self._met.notify_all()
            return fault

    def held(self) -> None:
        self._released.wait(PATIENCE)

    def over(self, pair: Pair) -> None:
        with self._lock:
            self._pairs.discard(pair)


class Pair:
    """One connection of a client, and its connection to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._fault: Fault | None = None
        self._server_spoke = True  # so that the first bytes of the client begin an exchange
        for one in (client, server):
            one.settimeout(PATIENCE)
            with contextlib.suppress(OSError):  # a unix socket has no such option
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> None:
        turns: dict[object, Callable[[bytes], bool]] = {
            self._client: self._from_client,
            self._server: self._from_server,
        }
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._client, selectors.EVENT_READ)
                selector.register(self._server, selectors.EVENT_READ)
                while True:
                    for key, _ in selector.select():
                        data = key.fileobj.recv(CHUNK)  # type: ignore[union-attr]
                        if not data or not turns[key.fileobj](data):
                            return
        except (OSError, ValueError):  # one of them is gone, or the test ended both
            return
        finally:
            self.end(reset=self._fault in RESETS)

    def _from_client(self, data: bytes) -> bool:
        if self._server_spoke:
            self._server_spoke = False
            if self._fault not in (Fault.SWALLOW_REQUEST, Fault.SWALLOW_REPLY):  # a black hole stays one
                self._fault = self._proxy.begun()
        if self._fault in ENDS_BEFORE:
            return False
        if self._fault is not Fault.SWALLOW_REQUEST:
            self._server.sendall(data)
        return True

    def _from_server(self, data: bytes) -> bool:
        self._server_spoke = True
        if self._fault in ENDS_AFTER:
            return False
        if self._fault is Fault.CUT_REPLY:
            self._client.sendall(data[: self._proxy.kept])
            return False
        if self._fault is Fault.SWALLOW_REPLY:
            return True
        if self._fault is Fault.HOLD:
            self._proxy.held()
        self._client.sendall(data)
        return True

    def end(self, *, reset: bool) -> None:
        self._proxy.over(self)
        if reset:
            abort(self._client)
        for one in (self._client, self._server):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def abort(connection: socket.socket) -> None:
    """Close with a reset instead of an orderly end."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
