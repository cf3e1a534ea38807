"""Submissions: `python -m examples.submissions [show | serve | consume | storm]`, see README.md."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec

from examples.service import server
from examples.service.json_log import log_as_json
from examples.submissions.bureau import bureau
from examples.submissions.desk import Desk
from examples.submissions.intake import BROKERS, METRICS, PATH, TOKEN, application, consumer
from examples.submissions.quote_table import QuoteTable
from examples.submissions.storm import Submissions, delivered
from onceward.errors import OncewardError
from onceward.queues import MemoryQueue
from onceward.queues.from_url import open_queue
from onceward.queues.process import run_all
from onceward.testing import storm


@contextmanager
def opened_desk(store: str, bureau_url: str, **choices: Any) -> Iterator[Desk]:
    """Open a desk on that store, or on SQLite in a temporary folder if there is none."""
    with tempfile.TemporaryDirectory(prefix="onceward-submissions-") as folder:
        store = store or f"sqlite:///{folder}/submissions.db"
        desk = Desk(store, bureau_url, QuoteTable(store, folder), **choices)
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
    with bureau(calm=True) as remote, opened_desk(store, remote.url) as desk:
        transport = httpx.WSGITransport(application(desk, BROKERS))
        first, second = next(events), next(events)
        with httpx.Client(transport=transport, base_url="http://insurer", headers=TOKEN) as client:
            for what, event in (("a broker sends it", first), ("got no answer, sends it again", first)):
                answer = client.post(PATH, content=msgspec.json.encode(delivered(event))).json()
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


def serve(chosen: argparse.Namespace) -> int:
    """Serve `POST /submissions` until stopped."""
    with bureau_at(chosen.bureau) as url, opened_desk(chosen.store, url, lease=chosen.lease) as desk:
        server.serve(server.as_asgi(application(desk, brokers(chosen.brokers))), desk.once, chosen, **METRICS)
    return 0


def consume(chosen: argparse.Namespace) -> int:
    """Consume submissions from a queue until stopped."""
    log_as_json(chosen.log_level)
    with bureau_at(chosen.bureau) as url, opened_desk(chosen.store, url, lease=chosen.lease) as desk:
        server.check(desk.once)
        run_all([consumer(desk, open_queue(chosen.queue))], lambda line: print(line, flush=True))
    return 0


@contextmanager
def bureau_at(url: str) -> Iterator[str]:
    """Return the URL of the bureau. Without one, start the stand-in, for a trial on this machine."""
    if url:
        yield url
        return
    with bureau() as stand_in:
        print(f"no --bureau: a stand-in bills the credit checks, its ledger is {stand_in.url}/ledger", flush=True)
        yield stand_in.url


def brokers(text: str) -> dict[str, str]:
    """Return the brokers by their tokens, from `token=name,token=name`."""
    found = dict(one.strip().rpartition("=")[::2] for one in text.split(",") if one.strip())
    if not found or not all(found) or not all(found.values()):
        sys.exit("python -m examples.submissions: serve needs the tokens of the brokers: BROKERS=token=name,token=name")
    return found


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    env = os.environ.get
    parser = argparse.ArgumentParser(prog="python -m examples.submissions", description="Process each submission once.")
    commands = parser.add_subparsers(dest="command")
    shown = commands.add_parser("show", help="a short demo (the default)")
    serving = commands.add_parser("serve", help="POST /submissions over HTTP, with /healthz, /readyz and /metrics")
    consuming = commands.add_parser("consume", help="process the submissions of a queue")
    commands.add_parser("storm", help="duplicates, disorder and kills, then an audit", add_help=False)
    for command in (parser, shown, serving, consuming):
        command.add_argument(
            "--store", default=env("STORE", ""), help="URL; default: SQLite in a temporary folder; $STORE"
        )
    for command in (serving, consuming):
        command.add_argument("--bureau", default=env("BUREAU_URL", ""), help="URL of the credit bureau; $BUREAU_URL")
        command.add_argument(
            "--lease", default=env("LEASE", "60s"), help="how long a claim outlives a crashed worker; $LEASE"
        )
    server.add_options(serving, port=8000)
    serving.add_argument("--brokers", default=env("BROKERS", ""), metavar="TOKEN=NAME,…", help="tokens; $BROKERS")
    consuming.add_argument(
        "--queue", default=env("QUEUE_URL"), required=not env("QUEUE_URL"),
        help="amqp://…?queue=…, nats://…?stream=…&durable=…, redis://…?stream=…&group=…, sqs+https://…; $QUEUE_URL",
    )  # fmt: skip
    consuming.add_argument("--log-level", default=env("LOG_LEVEL", "info"), help="default %(default)s; $LOG_LEVEL")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["storm"]:
        return storm.main("examples.submissions.storm:SYSTEM", arguments[1:])
    chosen = parse_arguments(arguments)
    if chosen.command == "serve":
        return serve(chosen)
    return consume(chosen) if chosen.command == "consume" else show(chosen.store)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OncewardError as error:
        sys.exit(f"python -m examples.submissions: {error}")
