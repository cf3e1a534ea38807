"""The statement resource as a process: `python -m examples.learning serve`."""

from __future__ import annotations

from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from examples.learning.endpoint import PATH, Statements
from examples.learning.records import Learning
from examples.learning.storage import open_storage
from examples.learning.unguarded import UnguardedLearning


class Server(ThreadingMixIn, WSGIServer):
    """The standard library's server with a thread per request. In production use a real one: the resource is WSGI."""

    daemon_threads = True
    request_queue_size = 128


class Quiet(WSGIRequestHandler):
    """Does not log requests."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its name there)
        pass


def serve(folder: Path, warehouse: str, port: int, users: dict[str, str], *, guarded: bool = True) -> None:
    """Serve until Ctrl-C."""
    with open_storage(folder, warehouse, Learning if guarded else UnguardedLearning) as storage:
        resource = Statements(storage.learning, users)
        with make_server("127.0.0.1", port, resource, Server, Quiet) as server:
            print(f"http://127.0.0.1:{server.server_port}{PATH}", flush=True)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                print("stopped")
