"""The fleet's push endpoint: `python -m examples.fleet.endpoint`, then POST Pub/Sub envelopes to /pubsub/push.

The endpoint reads the envelope and finds the handler; the consumer claims the message and writes the row in one
transaction. So the handler is declared with `claim=False`: it knows duplicates itself.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIServer, make_server

from msgspec import Struct, to_builtins

from examples.fleet.consumer import CREATE, apply_to
from examples.fleet.message import Message as FleetMessage
from onceward import Once, Outcome
from onceward.http.push import Message, PubSubPush


class Heartbeat(Struct, rename="camel", omit_defaults=True):
    """The shape of a system event. What does not have it is recorded, and not sent again."""

    service: str
    env: str
    status: str
    version: str = ""
    region: str = ""
    event_id: str = ""
    event_type: str = ""
    schema_version: str = ""
    produced_at: str = ""
    published_at: str = ""
    timestamp: str = ""
    sequence: int | None = None


class Fleet:
    """The endpoint on a file. The server's threads share the client; each request has a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.once = Once(f"sqlite:///{path}?synchronous=NORMAL")
        self._services = self.once.state("ops_services", str)
        self._services.read("nobody yet")  # opens the store, so that its tables are there
        with closing(self._connect()) as table:
            table.execute(CREATE)
        self.push = PubSubPush(self.once, "ops_dedupe", check=None)  # on loopback; else say who may push
        self.push.on(Heartbeat, claim=False)(self.heartbeat)

    def heartbeat(self, message: Message[Heartbeat]) -> Outcome[str]:
        """A system event: applied, stale or known."""
        known = FleetMessage(message.id, message.published_at or "", to_builtins(message.payload))
        with closing(self._connect()) as table:
            return apply_to(self._services, table, known)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30)

    def close(self) -> None:
        self.once.close()


class Server(ThreadingMixIn, WSGIServer):
    """The standard library's, with a thread a request. For production take a real one: the endpoint is plain WSGI."""

    daemon_threads = True


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.fleet.endpoint", description="POST /pubsub/push")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--file", type=Path, default=Path("fleet.db"))
    chosen = parser.parse_args(arguments)
    fleet = Fleet(chosen.file)
    with make_server("127.0.0.1", chosen.port, fleet.push, Server) as server:
        print(f"POST http://127.0.0.1:{server.server_port}/pubsub/push", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped")
    fleet.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
