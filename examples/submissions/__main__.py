"""Submissions: `python -m examples.submissions [--store URL]`, `… serve --port 8000`, or `… storm --seconds 20`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from wsgiref.simple_server import WSGIRequestHandler, make_server

import httpx
import msgspec

from examples.submissions.bureau import Bureau, bureau
from examples.submissions.desk import Desk
from examples.submissions.intake import BROKERS, PATH, TOKEN, Threads, application, consumer, with_metrics
from examples.submissions.quote_table import QuoteTable
from examples.submissions.storm import Submissions, delivered
from onceward.queues import MemoryQueue
from onceward.testing import storm


class Quiet(WSGIRequestHandler):
    """A handler that does not log requests."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name in the standard library)
        """Do nothing."""


@contextmanager
def opened_desk(store: str, remote: Bureau) -> Iterator[Desk]:
    """Open a desk on that store, or on SQLite in a temporary folder if there is none."""
    with tempfile.TemporaryDirectory(prefix="onceward-submissions-") as folder:
        store = store or f"sqlite:///{folder}/submissions.db"
        desk = Desk(store, remote.url, QuoteTable(store, folder))
        desk.once.migrate()
        desk.quotes.create()
        try:
            yield desk
        finally:
            desk.close()


def show(store: str) -> int:
    """Deliver the same submissions over HTTP, from a queue, and ten times concurrently."""
    import random

    events = Submissions().events(random.Random(1))
    with bureau(calm=True) as remote, opened_desk(store, remote) as desk:
        server = make_server("127.0.0.1", 0, application(desk, BROKERS), server_class=Threads, handler_class=Quiet)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}{PATH}"
        first, second = next(events), next(events)
        for what, event in (("a broker sends it", first), ("got no answer, sends it again", first)):
            answer = httpx.post(url, content=msgspec.json.encode(delivered(event)), headers=TOKEN).json()
            print(f"{what:<32} replay={answer['replay']!s:<6} {answer['quote']}")
        queue = MemoryQueue("submissions")
        for event in (first, second, second):
            queue.put(msgspec.json.encode(delivered(event)))
        asyncio.run(consume_all(desk, queue))
        print(f"{'three messages from a queue':<32} the same once more, and another one twice")
        third = next(events)
        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda _: desk.process.outcome(delivered(third)), range(10)))
        print(f"{'ten at once':<32} {sum(answer.executed for answer in answers)} executed, the others replayed")
        server.shutdown()
        server.server_close()
        rows, charges = len(desk.quotes.rows()), len(remote.ledger)
        print(f"\n3 submissions: {rows} rows in quotes, {charges} charges of the bureau; ", end="")
        print(f"{rows - charges} declined without a request")
    return 0


async def consume_all(desk: Desk, queue: MemoryQueue) -> None:
    """Consume everything in the queue."""
    app = consumer(desk, queue)
    app.poll_timeout = 0.05
    consuming = asyncio.create_task(app.consume())
    while len(queue):  # noqa: ASYNC110 (the queue of a broker has no event for that either)
        await asyncio.sleep(0.01)
    app.stop()
    await consuming


def serve(store: str, port: int) -> int:
    """Serve until Ctrl-C, with metrics for Prometheus."""
    with bureau() as remote, opened_desk(store, remote) as desk:
        app = with_metrics(application(desk, BROKERS), desk)
        with make_server("127.0.0.1", port, app, server_class=Threads) as server:
            print(f"POST http://127.0.0.1:{port}{PATH}, GET /metrics; the bureau's ledger: {remote.url}/ledger")
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                print(*desk.once.check(), sep="\n")
    return 0


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["storm"]:
        return storm.main("examples.submissions.storm:SYSTEM", arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m examples.submissions", description="Process each submission once.")
    parser.add_argument("what", nargs="?", choices=["show", "serve", "storm"], default="show")
    parser.add_argument("--store", default="", help="URL; default: SQLite in a temporary folder")
    parser.add_argument("--port", type=int, default=8000, help="port of `serve`")
    chosen = parser.parse_args(arguments)
    return serve(chosen.store, chosen.port) if chosen.what == "serve" else show(chosen.store)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
