"""The clients of `bench.http`, in a process of their own: `python -m bench.http_client CLIENTS`.

Each line on the standard input is a job, `PORT KEYS`, where KEYS are the keys to send, one a request, `-` for none;
they are sent over as many connections as there are clients, each waiting for its answer. When all are answered, a line
says with which statuses.
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
    """One connection that asks, waits, and asks again."""

    def __init__(self, keys: Iterator[str], statuses: Counter[str]) -> None:
        self._keys = keys
        self._statuses = statuses
        self._heard = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        key = next(self._keys, None)
        if key is None:
            self._transport.close()
        else:
            self._transport.write(request_with(key))

    def data_received(self, data: bytes) -> None:
        self._heard += data
        head, found, body = self._heard.partition(b"\r\n\r\n")
        if not found:
            return
        length = head.lower().partition(_LENGTH)[2].partition(b"\r\n")[0]
        if len(body) >= int(length) if length else body.endswith(_LAST_CHUNK):
            self._statuses[head[9:12].decode()] += 1
            self._heard = b""
            self._ask()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        if not self.done.done():
            self.done.set_result(None)


async def work(port: int, keys: list[str], clients: int) -> str:
    loop, left, statuses = asyncio.get_running_loop(), iter(keys), Counter[str]()
    links = [
        await loop.create_connection(lambda: Client(left, statuses), "127.0.0.1", port)
        for _ in range(min(clients, len(keys)))
    ]
    await asyncio.gather(*(client.done for _, client in links))
    return " ".join(f"{status}:{number}" for status, number in sorted(statuses.items()))


def main(clients: int) -> None:
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            port, *keys = line.split()
            print(runner.run(work(int(port), keys, clients)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
