"""Pauses: a worker is stopped for longer than its lease, others take over, and it continues as if nothing happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from onceward.testing.storm import Audit, Plan, Run, storm
from onceward.testing.storm.plan import LATEST_PAUSE, PAUSE_BEYOND_LEASE, Kill, Pause, planned_kills, planned_pauses
from onceward.testing.storm.process import Worker
from tests.chaos.processes import await_that, is_alive, state_of, storm_processes
from tests.chaos.stalled_orders import BEGUN, FIRST, is_charged

ROOT = Path(__file__).resolve().parents[2]
TOO_LONG = 60.0
ANY = 0  # index of the worker to try first


def test_the_same_seed_pauses_the_same_and_kills_as_it_does_without() -> None:
    plan = Plan(deliveries=500, workers=4, pauses=24)
    pauses = planned_pauses(plan)
    assert pauses == planned_pauses(plan) != planned_pauses(Plan(deliveries=500, workers=4, pauses=24, seed=2))
    assert len(pauses) == 24
    assert all(
        0 < pause.after < LATEST_PAUSE and PAUSE_BEYOND_LEASE[0] <= pause.beyond <= PAUSE_BEYOND_LEASE[1]
        for pause in pauses
    )
    assert {pause.victim for pause in pauses} == {0, 1, 2, 3}
    assert planned_kills(plan) == planned_kills(Plan(deliveries=500, workers=4, pauses=0))


def test_there_are_fewer_pauses_than_kills_and_none_of_an_only_worker() -> None:
    assert len(planned_pauses(Plan(seconds=20))) == 4
    assert len(planned_pauses(Plan(deliveries=1_000))) == 5
    assert planned_pauses(Plan(deliveries=1_000, workers=1)) == []


# ── Workers that continue after a pause ─────────────────────────────────────────────────────────────────────────────


def run_with_fault(
    monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, *, kill: bool = False, is_over: object = None
) -> Run:
    """Kill or pause the worker of the first order. A paused worker continues when another one has charged it."""
    kills, pauses = ([Kill(0.1, 0, ANY)], []) if kill else ([], [Pause(0.1, 0, ANY, 0.1)])
    time_is_over, is_eligible = Worker.pause_is_over, vars(Worker)["is_eligible"].fget

    def taken_over(worker: Worker, now: float) -> bool:
        return time_is_over(worker, now) and is_charged(folder / "orders.db")

    def has_begun(worker: Worker) -> bool:
        return is_eligible(worker) and (folder / BEGUN).exists()

    def at_the_first(_place: int, workers: Sequence[Worker]) -> Worker | None:
        """Return the worker of the first order; which one that is depends on which was ready first."""
        working = (worker for worker in workers if worker.current is not None and worker.current.event.id == FIRST)
        return next((worker for worker in working if worker.is_eligible), None)

    monkeypatch.setattr("onceward.testing.storm.faults.planned_kills", lambda _plan: kills)
    monkeypatch.setattr("onceward.testing.storm.faults.planned_pauses", lambda _plan: pauses)
    monkeypatch.setattr("onceward.testing.storm.faults._victim", at_the_first)
    monkeypatch.setattr(Worker, "is_eligible", property(has_begun))
    monkeypatch.setattr(Worker, "pause_is_over", is_over or taken_over)
    plan = Plan(deliveries=30, workers=2, duplicates=0, reorder=0, folder=str(folder))
    return storm(f"tests.chaos.stalled_orders:{name}", plan)


@pytest.mark.fault("F31", "F71")
@pytest.mark.parametrize(("name", "error"), [("FENCED", ("LeaseLost", "LeaseOverdue")), ("UNAWARE", "LeaseLost")])
def test_a_worker_replaced_while_paused_writes_nothing_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, error: str | tuple[str, ...]
) -> None:
    """Its own clock stops it, or the store refuses its token."""
    run = run_with_fault(monkeypatch, tmp_path, name)
    assert run.audit == Audit(expected=30, effects=30, duplicates=[], lost=[], wrong=[])
    assert (run.score.paused, run.score.killed, run.score.taken_over, run.score.acknowledged) == (1, 0, 1, 30)
    assert run.score.failed == 1, "the late worker got an error"
    assert run.score.last_failure.startswith(error)


@pytest.mark.parametrize("name", ["UNFENCED", "TOKENLESS"])
def test_a_row_that_is_not_fenced_is_there_twice_and_the_audit_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    run = run_with_fault(monkeypatch, tmp_path, name)
    assert list(run.audit.duplicates) == ["order-1"], run


@pytest.mark.parametrize("name", ["UNFENCED", "TOKENLESS"])
def test_kills_alone_would_not_have_shown_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    run = run_with_fault(monkeypatch, tmp_path, name, kill=True)
    assert run.audit.passed, run
    assert (run.score.killed, run.score.taken_over) == (1, 1)


def test_every_planned_pause_takes_place_however_quick_the_work_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceward.testing.storm.supervisor.LEASES", (0.05, 0.1))  # which this system does not need
    monkeypatch.setattr("onceward.testing.storm.plan.PAUSE_BEYOND_LEASE", (0.05, 0.1))
    run = storm("tests.chaos.invalid_systems:INSTANT", Plan(deliveries=20, workers=2, kills=3, pauses=5))
    assert (run.score.paused, run.score.killed, run.score.acknowledged) == (5, 3, 20)


# ── No worker stays paused ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_exception_while_a_worker_is_paused_leaves_no_process_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[int] = []

    def broken(worker: Worker, _now: float) -> bool:
        if worker.resumes_at is not None:
            begun.extend(storm_processes(os.getpid()))
            await_that(lambda: "T" in map(state_of, begun), "a worker is paused")
            raise RuntimeError("the supervisor has a bug")
        return False

    with pytest.raises(RuntimeError, match="has a bug"):
        run_with_fault(monkeypatch, tmp_path, "FENCED", is_over=broken)
    assert len(begun) == 3
    assert not any(map(is_alive, begun))


FOR_LONG = """
import signal, sys
from onceward.testing.storm import faults, main
from onceward.testing.storm.plan import Pause
signal.signal(signal.SIGINT, signal.default_int_handler)  # our parent may ignore it
faults.planned_pauses = lambda plan: [Pause(0, 0, 0, 1000.0)]
sys.exit(main(sys.argv[1], ["--seconds", "1000", "--workers", "2", "--kills", "0", "--folder", sys.argv[2]]))
"""
WITH_A_THREAD = """
import threading
from tests.chaos.orders import SYSTEM
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


@pytest.fixture(params=["forked", "fresh"])
def supervisor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A storm of two workers, one of which is paused for longer than the test runs."""
    (tmp_path / "threaded.py").write_text(WITH_A_THREAD)
    place = "threaded:SYSTEM" if request.param == "fresh" else "tests.chaos.orders:SYSTEM"
    with subprocess.Popen(
        [sys.executable, "-c", FOR_LONG, place, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path)])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_stays_paused_when_the_storm_is_interrupted_or_killed(
    supervisor: subprocess.Popen[str], number: signal.Signals
) -> None:
    await_that(lambda: "T" in map(state_of, storm_processes(supervisor.pid)), "a worker is paused")
    begun = storm_processes(supervisor.pid)
    assert len(begun) == 3
    supervisor.send_signal(number)
    try:
        supervisor.communicate(timeout=TOO_LONG)
        await_that(lambda: not any(map(is_alive, begun)), "no process outlives the supervisor")
    finally:
        for left in filter(is_alive, begun):
            os.kill(left, signal.SIGKILL)
