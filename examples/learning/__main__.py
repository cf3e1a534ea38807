"""Learning records: `python -m examples.learning [serve | process | consume | import | storm]`.

Without a command, it imports the sample files and delivers the statements, everything twice. In the end every statement
and every user is stored once, and the statements have the teams from the CSV file.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from uuid import uuid4

from msgspec import json

from examples.learning.consumer import decode_message, store_events
from examples.learning.storage import open_storage
from examples.learning.tables import ENRICHED
from examples.service import server
from onceward.errors import OncewardError
from onceward.protocol.secrets import url_without_secrets
from onceward.queues import Message

FILES = Path(__file__).with_name("files")
TRIAL_USER = "learner:secret"  # for a trial on this machine
SAMPLES: tuple[tuple[str, dict[str, str]], ...] = (("users.csv", {"Full name": "name"}), ("hr.ndjson", {}))


def show() -> int:
    messages = [
        Message(line, f"sample/{number}")
        for number, line in enumerate((FILES / "statements.ndjson").read_bytes().splitlines())
    ]
    with tempfile.TemporaryDirectory(prefix="onceward-learning-") as name:
        folder = Path(name)
        rejects = folder / "rejected.csv"
        for attempt in ("first", "second"):  # everything is delivered again, to a new process
            with open_storage(folder) as storage:
                learning = storage.learning
                print(f"{attempt} delivery")
                for file, mapped in SAMPLES:
                    summary = learning.import_users(FILES / file, map=mapped, rejects=rejects)
                    print(f"  {file:<16}{'nothing to do' if summary.replayed else summary}")
                before = learning.house.query("SELECT count(*) FROM statements")[0][0]
                store_events(learning, [decode_message(message) for message in messages])
                after = learning.house.query("SELECT count(*) FROM statements")[0][0]
                print(f"  statements      {after - before} stored, {len(messages) - after + before} already stored")
                learning.publish_users(f"users, {attempt}")
                rows, users = learning.house.query(ENRICHED), len(learning.people)
        print("\nstatements, with the files' data about their users")
        for statement, user, verb, course, data in rows:
            done = f"{verb.rpartition('/')[2]} {course.rpartition('/')[2]}"
            print(f"  {statement[:13]}  {user:<18}{done:<21}{describe_user(json.decode(data or '[]'))}".rstrip())
        print(f"\n{users} users. Rejected, with its line and the reason:")
        print(*(f"  {line}" for line in rejects.read_text(encoding="utf-8").splitlines()[1:]), sep="\n")
        return 0 if (len(rows), users) == (3, 4) else 1


def describe_user(rows: list[dict[str, str]]) -> str:
    """Return what the files contain about a user besides name and address, without duplicates."""
    facts = [f"{name} {value}" for row in rows for name, value in row.items() if name not in ("email", "name")]
    return ", ".join(dict.fromkeys(facts))


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.learning", description="Statements and users, each once.")
    commands = parser.add_subparsers(dest="command")
    serve = commands.add_parser("serve", help="the statement resource over HTTP")
    server.add_options(serve)
    serve.add_argument(
        "--user", default=os.environ.get("LEARNING_USER", TRIAL_USER), help="name:password; $LEARNING_USER"
    )
    serve.add_argument("--unguarded", action="store_true", help="append every message, as hand-written code often does")
    serve.add_argument("--leashed", action="store_true", help="exit when standard input is closed")
    consume = commands.add_parser("consume", help="consume statements from a Redis stream until it is empty")
    consume.add_argument("--queue", default="redis://127.0.0.1:6379/0")
    consume.add_argument("--stream", default="statements")
    consume.add_argument("--size", type=int, required=True, help="total number of statements, for the progress bar")
    consume.add_argument("--largest", type=int, default=2_000, help="statements per merge, default %(default)s")
    consume.add_argument("--ack-deadline", type=float, default=30.0, help="seconds, default %(default)s")
    process = commands.add_parser("process", help="process statements from Pub/Sub until SIGTERM")
    process.add_argument("--subscription", required=True, help="projects/PROJECT/subscriptions/NAME")
    process.add_argument("--users", default="", metavar="URL", help="postgresql://…, to share users between processes")
    process.add_argument("--ack-deadline", type=int, help="seconds, default: that of the subscription")
    process.add_argument("--largest", type=int, default=1_000, help="statements per merge, default %(default)s")
    process.add_argument("--lenient", action="store_true", help="accept ids that are no UUIDs, and missing parts")
    commands.add_parser("storm", help="duplicates, disorder, kills and pauses, then an audit", add_help=False)
    import_users = commands.add_parser("import", help="import a CSV file of users")
    import_users.add_argument("file", type=Path)
    for command in (serve, process, consume, import_users):
        command.add_argument(
            "--folder", type=Path, default=Path(os.environ.get("FOLDER", "")), help="folder of the data files; $FOLDER"
        )
    for command in (serve, process, import_users):
        command.add_argument(
            "--warehouse", default=os.environ.get("WAREHOUSE", ""), metavar="URL",
            help="postgresql://… or bigquery://…; $WAREHOUSE",
        )  # fmt: skip
    chosen = parser.parse_args(arguments)
    if chosen.command == "serve":
        if not all(chosen.user.partition(":")):
            serve.error("--user is name:password")
        if chosen.user == TRIAL_USER and server.is_public(chosen.host):
            serve.error(
                f"on {chosen.host}, users must be authenticated: everybody knows {TRIAL_USER}, so set $LEARNING_USER"
            )
    return chosen


def consume(chosen: argparse.Namespace) -> int:
    try:
        import redis

        from examples.learning.backlog import Source, drain
    except ModuleNotFoundError:
        return fail("consume needs redis-py: pip install redis")
    source = Source(chosen.queue, chosen.stream, chosen.size, chosen.largest, chosen.ack_deadline)
    try:
        print(json.encode(drain(chosen.folder, source, lambda line: print(line, flush=True))).decode())
    except redis.ConnectionError as error:
        return fail(f"cannot connect to Redis at {url_without_secrets(chosen.queue)}: {error}")
    except (redis.RedisError, ValueError) as error:
        return fail(f"{chosen.stream} at {url_without_secrets(chosen.queue)} cannot be consumed: {error}")
    return 0


def process(chosen: argparse.Namespace) -> int:
    try:
        from examples.learning.processor import Processing, process
    except ModuleNotFoundError:
        return fail('process needs Google\'s client: pip install "onceward[pubsub,bigquery]"')
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    names = ("subscription", "warehouse", "users", "folder", "ack_deadline", "largest", "lenient")
    process(Processing(**{name: getattr(chosen, name) for name in names}), lambda line: print(line, flush=True))
    return 0


def fail(why: str) -> int:
    print(f"python -m examples.learning: {why}", file=sys.stderr)
    return 1


def end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["storm"]:
        from onceward.testing import storm

        return storm.main("examples.learning.storm:SYSTEM", arguments[1:])
    chosen = parse_arguments(arguments)
    if chosen.command == "serve":
        from examples.learning.server import serve

        if chosen.leashed:
            Thread(target=end_with_input, daemon=True).start()
        serve(chosen)
    elif chosen.command == "consume":
        return consume(chosen)
    elif chosen.command == "process":
        return process(chosen)
    elif chosen.command == "import":
        with open_storage(chosen.folder, chosen.warehouse) as storage:
            summary = storage.learning.import_users(chosen.file)
            print(f"{chosen.file} was imported before, so nothing was done: {summary}" if summary.replayed else summary)
            storage.learning.publish_users(f"users {uuid4()}")  # even if the file is known: other users may be new
    else:
        return show()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OncewardError as error:
        sys.exit(f"python -m examples.learning: {error}")
