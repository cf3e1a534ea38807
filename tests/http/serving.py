"""An application under uvicorn: `python -m tests.http.serving PORT FOLDER URL [SETTINGS]`.

Below /bare it is the application itself, elsewhere the same one behind the middleware. Its effects are written to the
folder's `effects`, one line each.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from onceward import AsyncOnce, current_async_claim
from onceward.http.asgi import IdempotencyMiddleware


class Application:
    """An application with one coroutine per route."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        name = scope["path"].rpartition("/")[2]
        await getattr(self, f"at_{name}")(scope, receive, send)

    async def at_pay(self, scope: Any, receive: Any, send: Any) -> None:
        """Take a while, so that duplicates arrive while it runs."""
        await body_of(receive)
        effects = self._effect("paid")
        await asyncio.sleep(0.2)
        await answer(send, 201, b"payment %d" % effects)

    async def at_hang(self, scope: Any, receive: Any, send: Any) -> None:
        """Apply the effect; the first attempt never ends."""
        await body_of(receive)
        if self._effect(current_async_claim().derived_key("charge")) == 1:
            await asyncio.Event().wait()
        await answer(send, 201, b"done")

    async def at_upload(self, scope: Any, receive: Any, send: Any) -> None:
        digest, size, more = hashlib.sha256(), 0, True
        while more:
            message = await receive()
            digest.update(message["body"])
            size += len(message["body"])
            more = message["more_body"]
        self._effect("uploaded")
        await answer(send, 200, f"{size} {digest.hexdigest()}".encode())

    async def at_memory(self, scope: Any, receive: Any, send: Any) -> None:
        """Return the peak memory of this process, in kB."""
        await answer(send, 200, b"%d" % most_memory())

    async def at_stream(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"1"), (b"x", b"2")]})
        for number in range(20):
            await send({"type": "http.response.body", "body": b"%d\n" % number * 100, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def at_events(self, scope: Any, receive: Any, send: Any) -> None:
        """Send server-sent events until `receive` reports that the client disconnected."""
        kind = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await body_of(receive)
        left = asyncio.ensure_future(receive())
        number = 0
        while not left.done():
            await send({"type": "http.response.body", "body": b"data: %d\n\n" % number, "more_body": True})
            number += 1
            await asyncio.sleep(0.01)
        self._effect("left")

    async def at_socket(self, scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"][::-1]})

    def _effect(self, line: str) -> int:
        with (self._folder / "effects").open("a+") as file:
            file.write(f"{line}\n")
            file.flush()
            file.seek(0)
            return len(file.readlines())


def most_memory() -> int:
    """Return the peak memory. `getrusage` would include the process that this one was forked from."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0])


async def body_of(receive: Any) -> bytes:
    message = await receive()
    parts = [message["body"]]
    while message["more_body"]:
        message = await receive()
        parts.append(message["body"])
    return b"".join(parts)


async def answer(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def lifespan(receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


def main(port: int, folder: Path, url: str, settings: dict[str, Any]) -> None:
    import uvicorn

    application = Application(folder)
    guarded = IdempotencyMiddleware(
        application, AsyncOnce(url), principal=lambda scope: "alice", optional=["/pay", "/hang", "/upload"], **settings
    )

    async def both(scope: Any, receive: Any, send: Any) -> None:
        app = application if scope.get("path", "").startswith("/bare") else guarded
        await app(scope, receive, send)

    uvicorn.run(both, host="127.0.0.1", port=port, log_level="warning", server_header=False, date_header=False)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]) if len(sys.argv) > 4 else {})
