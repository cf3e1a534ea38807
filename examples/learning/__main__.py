"""Learning records: `python -m examples.learning [serve | consume | import | storm]`.

Without a word: the sample files are imported and the statements delivered, all of it twice. In the end every statement
and every user is there once, and the statements know the teams from the CSV file.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from uuid import uuid4

from msgspec import json

from examples.learning.consumer import read, stored
from examples.learning.place import opened
from examples.learning.tables import ENRICHED
from onceward.cli.settings import masked
from onceward.errors import OncewardError
from onceward.queues import Message

FILES = Path(__file__).with_name("files")
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
            with opened(folder) as place:
                learning = place.learning
                print(f"{attempt} delivery")
                for file, mapped in SAMPLES:
                    summary = learning.import_users(FILES / file, map=mapped, rejects=rejects)
                    print(f"  {file:<16}{'nothing to do' if summary.replayed else summary}")
                before = learning.house.query("SELECT count(*) FROM statements")[0][0]
                stored(learning, [read(message) for message in messages])
                after = learning.house.query("SELECT count(*) FROM statements")[0][0]
                print(f"  statements      {after - before} stored, {len(messages) - after + before} known")
                learning.publish_users(f"users, {attempt}")
                rows, users = learning.house.query(ENRICHED), len(learning.people)
        print("\nstatements, with what the files know of their users")
        for statement, user, verb, course, data in rows:
            done = f"{verb.rpartition('/')[2]} {course.rpartition('/')[2]}"
            print(f"  {statement[:13]}  {user:<18}{done:<21}{known(json.decode(data or '[]'))}".rstrip())
        print(f"\n{users} users. Rejected, with its line and the reason:")
        print(*(f"  {line}" for line in rejects.read_text(encoding="utf-8").splitlines()[1:]), sep="\n")
        return 0 if (len(rows), users) == (3, 4) else 1


def known(told: list[dict[str, str]]) -> str:
    """What the files say of a user beside name and address, each once."""
    said = [f"{name} {value}" for one in told for name, value in one.items() if name not in ("email", "name")]
    return ", ".join(dict.fromkeys(said))


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.learning", description="Statements and users, each once.")
    words = parser.add_subparsers(dest="word")
    serve = words.add_parser("serve", help="the statement resource over HTTP")
    serve.add_argument("--port", type=int, default=8080)
    serve.add_argument("--user", default="learner:secret", help="name:password, default %(default)s")
    serve.add_argument("--unguarded", action="store_true", help="append whatever comes, as it is often written by hand")
    serve.add_argument("--leashed", action="store_true", help="end when the standard input does")
    consume = words.add_parser("consume", help="statements from a stream of Redis, until none is left")
    consume.add_argument("--queue", default="redis://127.0.0.1:6379/0")
    consume.add_argument("--stream", default="statements")
    consume.add_argument("--size", type=int, required=True, help="how many there are in all, for the bar")
    consume.add_argument("--largest", type=int, default=2_000, help="statements in one merge, default %(default)s")
    consume.add_argument("--ack-deadline", type=float, default=30.0, help="seconds, default %(default)s")
    words.add_parser("storm", help="duplicates, disorder, kills and pauses, then an audit", add_help=False)
    bring = words.add_parser("import", help="a CSV file of users")
    bring.add_argument("file", type=Path)
    for one in (serve, consume, bring):
        one.add_argument("--folder", type=Path, default=Path(), help="where the files are")
    for one in (serve, bring):
        one.add_argument("--warehouse", default="", metavar="URL", help="postgresql://… or bigquery://…")
    return parser.parse_args(arguments)


def consume(chosen: argparse.Namespace) -> int:
    try:
        import redis

        from examples.learning.backlog import Source, drain
    except ModuleNotFoundError:
        return told("consume needs a client of Redis: pip install redis")
    source = Source(chosen.queue, chosen.stream, chosen.size, chosen.largest, chosen.ack_deadline)
    try:
        print(json.encode(drain(chosen.folder, source, lambda line: print(line, flush=True))).decode())
    except redis.ConnectionError as error:
        return told(f"there is no Redis at {masked(chosen.queue)}: {error}")
    except (redis.RedisError, ValueError) as error:
        return told(f"{chosen.stream} at {masked(chosen.queue)} cannot be consumed: {error}")
    return 0


def told(why: str) -> int:
    print(f"python -m examples.learning: {why}", file=sys.stderr)
    return 1


def end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["storm"]:
        from onceward.testing import storm

        return storm.main("examples.learning.storm:SYSTEM", arguments[1:])
    chosen = parsed(arguments)
    if chosen.word == "serve":
        from examples.learning.server import serve

        if chosen.leashed:
            Thread(target=end_with_input, daemon=True).start()
        users = dict([chosen.user.split(":", 1)])
        serve(chosen.folder, chosen.warehouse, chosen.port, users, guarded=not chosen.unguarded)
    elif chosen.word == "consume":
        return consume(chosen)
    elif chosen.word == "import":
        with opened(chosen.folder, chosen.warehouse) as place:
            print(place.learning.import_users(chosen.file))
            place.learning.publish_users(f"users {uuid4()}")  # also if the file is known: others may have come since
    else:
        return show()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OncewardError as error:
        sys.exit(f"python -m examples.learning: {error}")
