"""Every order of the steps of a race that frontrun distinguishes, on a real SQLite file.

    python -m tests.evidence.schedules completes SQLiteStore [--bound 2] [--most 2000]

Each client is stopped before every statement, and frontrun (dynamic partial order reduction) decides which client
continues. It knows SQL statements and Python's locks. Two things that it cannot know are handled here:

- A writer waits for SQLite's lock inside of SQLite, where frontrun cannot run another client. So a lock that frontrun
  knows is acquired where SQLite acquires its own, and released where SQLite releases it.
- It follows the bytecode of everything that is not installed. Clients on connections of their own share no objects, as
  if they were processes: that would only multiply equal orders. So Onceward is imported by a path that looks installed.

The number of orders alone proves little: a search that prunes too much finds nothing either. So each ending is counted.
A test should require every legal ending, and that the same search finds a planted bug.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from onceward.runtime.threads import run
from tests.evidence.races import CLAIMANTS, LATER, OWNER, RACES, STORES, At, Client, begin, claims, one_winner

ROOT = Path(__file__).parents[2]
BOUND = 2
"""How often a client may be interrupted although it could continue. The planted bugs need one interruption, or none.

Not more: with three, frontrun 0.7 stops after nine orders, all with the same ending.
"""

MOST = 2_000
"""Maximum number of orders. With one interruption no race has as many, so the search is complete."""


class Explored(NamedTuple):
    """How many orders were tried, whether these were all, how often each ending was seen, and what broke."""

    orders: int
    all: bool
    endings: dict[str, int]
    broken: str


def explore(race: str, store: str = "SQLiteStore", *, bound: int = BOUND, most: int = MOST) -> Explored:
    """Run in a separate process, because frontrun replaces locks, clocks and `sqlite3.connect`."""
    with tempfile.TemporaryDirectory() as folder:
        installed = Path(folder, "site-packages")
        installed.mkdir()
        (installed / "onceward").symlink_to(ROOT / "src" / "onceward")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "frontrun.cli", sys.executable, "-m", "tests.evidence.schedules"),
                *(race, store, "--bound", str(bound), "--most", str(most)),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(installed), str(ROOT)))},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"frontrun ended with {done.returncode}: {done.stdout}{done.stderr}")
    return Explored(*json.loads(done.stdout.splitlines()[-1]))


def _explore(race: str, store: str, *, bound: int, most: int) -> Explored:
    import frontrun  # type: ignore[import-untyped]  # it ships no types

    endings: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "once.db")

        def set_up() -> list[Client]:
            for old in Path(folder).iterdir():
                old.unlink()
            begin(path, race)
            connect = sqlite3.connect
            sqlite3.connect = _visibly(connect)
            try:
                return [Client(name, STORES[store](path, clock=At(LATER))) for name in (*CLAIMANTS, OWNER)]
            finally:
                sqlite3.connect = connect

        def holds(clients: list[Client]) -> bool:
            endings[", ".join(f"{one.name} {one.verdict}" for one in clients)] += 1
            right = one_winner(path, clients)
            for one in clients:
                run(one.store.close())
            return right

        result = frontrun.explore(
            setup=set_up,
            workers=[
                *(lambda clients, n=n: claims(clients[n]) for n in range(len(CLAIMANTS))),
                lambda clients: RACES[race](clients[-1]),
            ],
            invariant=holds,
            max_executions=most,
            preemption_bound=bound,
            timeout_per_run=30,
            reproduce_on_failure=1,
            warn_nondeterministic_sql=False,  # there is only one row that an INSERT can create
        )
    broken = "" if result.property_holds else result.explanation or "inconclusive"
    return Explored(result.num_explored, result.num_explored < most, dict(endings), broken)


def _visibly(connect: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap frontrun's `sqlite3.connect`, so that frontrun sees when a connection waits for SQLite's lock."""
    probe = connect(":memory:")
    traced = type(probe.cursor())
    probe.close()
    lock = threading.Lock()

    class Cursor(traced):  # type: ignore[valid-type, misc]  # a class that frontrun makes at run time
        def execute(self, statement: str, parameters: Any = ()) -> Any:
            if statement == "BEGIN IMMEDIATE":
                lock.acquire()
            done = super().execute(statement, parameters)
            if statement in {"COMMIT", "ROLLBACK"}:
                lock.release()
            return done

    class Connection(sqlite3.Connection):
        def cursor(self, _: Any = None) -> Any:
            return sqlite3.Connection.cursor(self, Cursor)

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> Any:
            """Release the lock after a `with` block, which commits or rolls back without a statement."""
            writing = self.in_transaction
            done = super().__exit__(kind, error, trace)
            if writing:
                lock.release()
            return done

    return functools.partial(connect, factory=Connection)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.evidence.schedules")
    parser.add_argument("race", choices=RACES)
    parser.add_argument("store", choices=STORES, nargs="?", default="SQLiteStore")
    parser.add_argument("--bound", type=int, default=BOUND, help="interruptions, default 2")
    parser.add_argument("--most", type=int, default=MOST, help="orders, default 2000")
    chosen = parser.parse_args(arguments)
    here = os.environ.get("FRONTRUN_ACTIVE") == "1"  # set by frontrun's command
    found = (_explore if here else explore)(chosen.race, chosen.store, bound=chosen.bound, most=chosen.most)
    print(json.dumps(found) if here else found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
