"""Sagas in processes that are killed: `python -m tests.chaos.saga_victim PLACE FOLDER SCENE`.

One process for each point of the scene: it carries a saga as far as that point, and SIGKILLs itself there. Another
one, an hour later by the store's clock, is a recovery worker. Both are forked from this process, which has imported
what they need and opened nothing. One line of JSON a point tells how the saga ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from onceward import Once
from onceward.model.journal import Journal
from onceward.ports import Store
from onceward.stores.postgres import PostgresStore
from onceward.stores.sqlite import SQLiteStore
from tests.chaos.saga_stage import Points, Remote, Scene, Stage, fault_of

HOUR = 3600 * 1_000_000
SCENES = {
    "done": Scene(),
    "refused": Scene({"ship": "refused", "charge": "stubborn"}),
    "verified": Scene({"ship": "refused"}, settled={"reserve": "verify", "charge": "verify", "ship": "verify"}),
    "neither": Scene(settled={"charge": "park"}),
}


class Shifted:
    """The machine's clock, so much later."""

    def __init__(self, later: int) -> None:
        self._later = later

    def now(self) -> int:
        return time.time_ns() // 1000 + self._later


def store_at(place: str, later: int) -> Store:
    """A SQLite file, or the schema of a PostgreSQL: `URL schema`."""
    url, _, schema = place.partition(" ")
    if schema:
        return PostgresStore(url, schema=schema, migrate=True, clock=Shifted(later))
    return SQLiteStore(url, clock=Shifted(later))


class Life:
    """One process's part of saga number `order`."""

    def __init__(self, place: str, folder: Path, scene: Scene, order: int, *, at: int | None, later: int = 0) -> None:
        self.once = Once(store_at(place, later), lease="10m")
        self.remote = Remote(folder)
        self.order = order
        self._points = Points(at, lambda: os.kill(os.getpid(), signal.SIGKILL))
        stage = Stage(scene, self.remote, self._points, self.journal)
        self.saga = self.once.saga("order", *stage.steps(), key="order:{order}")
        store: Any = self.once.engine.store
        for verb in ("claim", "renew", "settle"):
            setattr(store, verb, self._pointed(getattr(store, verb)))

    def _pointed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def pointed(*args: Any, **kwargs: Any) -> Any:
            self._points()
            answers = await call(*args, **kwargs)
            self._points()
            return answers

        return pointed

    def journal(self) -> Journal | None:
        entry = self.saga.read(order=self.order)
        return None if entry is None else entry.saga

    def deliver(self) -> None:
        self.saga.outcome(order=self.order)
        self.once.close(timeout=0)

    def recover(self, *, may_park: bool) -> None:
        found = self.once.recover()
        entry = self.saga.read(order=self.order)
        if entry is None:  # killed before its claim was made: nobody can know of it but its sender
            self.deliver()
            entry = self.saga.read(order=self.order)
        state = "absent" if entry is None else entry.state.value
        fault = fault_of(state, self.remote, may_park=may_park)
        calls = self.remote.calls()
        found_something = found.done + found.failed + found.parked
        line = {"point": self.order, "state": state, "fault": fault, "calls": calls, "recovered": found_something}
        print(json.dumps(line), flush=True)
        self.once.close(timeout=0)


def in_a_process(work: Callable[[], None]) -> int:
    """How it ended: a negative number is the signal that killed it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(place: str, base: str, name: str) -> int:
    scene = SCENES[name]
    for point in count(1):
        folder = Path(base) / f"{name} {point}"
        folder.mkdir()
        ended = in_a_process(lambda: Life(place, folder, scene, point, at=point).deliver())  # noqa: B023 (run at once)
        if ended not in (0, -signal.SIGKILL):
            return 1
        healed = in_a_process(
            lambda: Life(place, folder, scene, point, at=None, later=HOUR).recover(may_park=name == "neither")  # noqa: B023 (as above)
        )
        if healed != 0:
            return 1
        if ended == 0:  # it was not killed any more: that were all points
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
