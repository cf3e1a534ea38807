"""The clients of `bench.http`, in a separate process: `python -m bench.http_client CLIENTS`.

Each line on standard input is a job, `PORT KEYS`. KEYS are the idempotency keys, one per request; `-` means none. There
is one connection per client, and each waits for its response. When all responses have arrived, a line with the statuses
is printed.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator

BODY = b'{"item": "book", "cents": 500, "note": "with a ribbon, please"}'
HEAD = (
    b"POST /orders HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench\r\nAccept: */*\r\nAuthorization: Bearer abc\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(BODY)
)
_LENGTH = b"content-length: "
_LAST_CHUNK = b"0\r\n\r\n"


def request_with(key: str) -> bytes:
    header = b"" if key == "-" else b'Idempotency-Key: "%b"\r\n' % key.encode()
    return b"%b%b\r\n%b" % (HEAD, header, BODY)


class Client(asyncio.Protocol):
    """One connection that sends a request, waits for the response, and sends the next one."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def work(self, keys: Iterator[str], statuses: Counter[str]) -> asyncio.Future[None]:
        """Send one request after the other until no keys are left."""
        self._keys = keys
        self._statuses = statuses
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._send_next()
        return self._done

    def _send_next(self) -> None:
        key = next(self._keys, None)
        if key is None:
            self._done.set_result(None)
        else:
            self._transport.write(request_with(key))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = head.lower().partition(_LENGTH)[2].partition(b"\r\n")[0]
        if len(body) >= int(length) if length else body.endswith(_LAST_CHUNK):
            self._statuses[head[9:12].decode()] += 1
            self._buffer = b""
            self._send_next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or ConnectionError("the server closed the connection"))


async def work(port: int, keys: list[str], clients: int, known: dict[int, list[Client]]) -> str:
    """Run a job. Connections stay open, so that connecting is not measured."""
    loop, left, statuses = asyncio.get_running_loop(), iter(keys), Counter[str]()
    if port not in known:
        connections = [await loop.create_connection(Client, "127.0.0.1", port) for _ in range(clients)]
        known[port] = [client for _, client in connections]
    await asyncio.gather(*(client.work(left, statuses) for client in known[port]))
    return " ".join(f"{status}:{number}" for status, number in sorted(statuses.items()))


def main(clients: int) -> None:
    known: dict[int, list[Client]] = {}
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            port, *keys = line.split()
            print(runner.run(work(int(port), keys, clients, known)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
