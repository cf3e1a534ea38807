"""Sagas in processes that are killed: `python -m tests.chaos.saga_victim DATABASE FOLDER SCENARIO`.

One process for each point of the scenario: it runs its own saga up to that point, and kills itself with SIGKILL. The
last process, an hour later by the store's clock, is a recovery worker, which finishes all sagas. They are forked from
this process, which has imported everything and opened nothing. It prints one line of JSON for each point.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from onceward import Once
from onceward.protocol.ports import Store
from onceward.sagas import Saga, Step, StepContext
from onceward.sagas.journal import Journal
from onceward.stores import MemoryStore
from onceward.stores.postgres import PostgresStore
from onceward.stores.sqlite import SQLiteStore
from tests.chaos.saga_steps import Points, Remote, Scenario, ScenarioSteps, fault_of

HOUR = 3600 * 1_000_000
SCENARIOS = {
    "done": Scenario(),
    "refused": Scenario({"ship": "refused", "charge": "stubborn"}, settled={"reserve": "verify", "ship": "verify"}),
    "neither": Scenario(settled={"charge": "park"}),
}


class Shifted:
    """The machine's clock, `later` microseconds ahead."""

    def __init__(self, later: int) -> None:
        self._later = later

    def now(self) -> int:
        return time.time_ns() // 1000 + self._later


def store_at(place: str, later: int) -> Store:
    """Return the store on a SQLite file, or on a schema of PostgreSQL: `URL schema`."""
    url, _, schema = place.partition(" ")
    if schema:
        return PostgresStore(url, schema=schema, migrate=True, clock=Shifted(later))
    return SQLiteStore(url, clock=Shifted(later), synchronous="NORMAL")  # safe here: a kill is not a power loss


class Orders(ScenarioSteps):
    """Each saga has its own remote."""

    def __init__(self, scenario: Scenario, base: Path, points: Points, saga: Callable[[], Saga]) -> None:
        super().__init__(scenario, remote_of(base, 0), points, self._read)
        self._base = base
        self._saga = saga
        self._order = 0

    def _read(self) -> Journal | None:
        entry = self._saga().read(order=self._order)
        return None if entry is None else entry.saga

    def _select_remote(self, step: StepContext) -> None:
        self._order = step.input["order"]
        self.remote = remote_of(self._base, self._order)

    def do(self, step: StepContext) -> str:
        self._select_remote(step)
        return super().do(step)

    def undo(self, step: StepContext) -> None:
        self._select_remote(step)
        super().undo(step)

    def find(self, step: StepContext) -> object:
        self._select_remote(step)
        return super().find(step)


def remote_of(base: Path, order: int) -> Remote:
    folder = base / f"order {order}"
    folder.mkdir(exist_ok=True)
    return Remote(folder)


class Life:
    """The work of one process."""

    def __init__(self, place: str, base: Path, scenario: Scenario, *, at: int | None = None, later: int = 0) -> None:
        self.once = Once(store_at(place, later), lease="10m")
        self._base = base
        self._points = Points(at, lambda: os.kill(os.getpid(), signal.SIGKILL))
        steps_of_scenario = Orders(scenario, base, self._points, lambda: self.saga)
        self.saga = self.once.saga("order", *steps_of_scenario.steps(), key="order:{order}")
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

    def deliver(self, order: int) -> None:
        self.saga.outcome(order=order)
        self.once.close(timeout=0)

    def recover(self, orders: int, *, may_park: bool) -> None:
        """Finish all sagas that were killed; then print the final state of each."""
        found = self.once.recover()
        print(json.dumps({"recovered": found.done + found.failed + found.parked}), flush=True)
        for order in range(1, orders + 1):
            if self.saga.read(order=order) is None:  # killed before its claim was stored: only its sender knows of it
                self.saga.outcome(order=order)
            entry = self.saga.read(order=order)
            state = "absent" if entry is None else entry.state.value
            remote = remote_of(self._base, order)
            fault = fault_of(state, remote, may_park=may_park)
            print(json.dumps({"point": order, "state": state, "fault": fault, "calls": remote.calls()}), flush=True)
        self.once.close(timeout=0)


def in_a_process(work: Callable[[], None]) -> int:
    """Run the work in a forked process. Return its exit code; a negative number is the signal that killed it."""
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


def warm_up() -> None:
    """Import here what is otherwise imported lazily in each process."""
    with Once(MemoryStore()) as once:
        once.saga("order", Step("step", lambda step: step.key, kind="pivot"), key="order:{order}")(order=1)
        once.recover()
    with tempfile.TemporaryDirectory() as folder, Once(SQLiteStore(f"{folder}/once.db")) as once:
        once.run("k", len, [1])


def main(place: str, base: str, name: str) -> int:
    scenario, folder = SCENARIOS[name], Path(base)
    warm_up()
    for point in count(1):
        ended = in_a_process(lambda: Life(place, folder, scenario, at=point).deliver(point))  # noqa: B023 (run immediately)
        if ended == 0:  # it was not killed: all points are done
            break
        if ended != -signal.SIGKILL:
            return 1
    may_park = name == "neither"
    return in_a_process(lambda: Life(place, folder, scenario, later=HOUR).recover(point, may_park=may_park))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
