"""The storm: traffic and kills depend on the seed only, the audit can fail, and no process is left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

import msgspec
import pytest

from onceward import Executed, Failed, Mismatch, Parked, Replayed, Running, Stale, Unknown
from onceward.testing.storm import Audit, HandlerResult, Plan, StormEvent, Trouble, main, storm
from onceward.testing.storm.contract import ACKNOWLEDGED
from onceward.testing.storm.plan import planned_kills
from onceward.testing.storm.traffic import StormDelivery, Traffic
from tests.chaos.orders import SYSTEM
from tests.chaos.processes import await_that, is_alive, storm_processes

ORDERS = "tests.chaos.orders:SYSTEM"
ROOT = Path(__file__).resolve().parents[2]
TOO_LONG = 60.0


def delivered(plan: Plan) -> tuple[list[StormDelivery], list[StormEvent]]:
    traffic = Traffic(SYSTEM.events(random.Random(plan.seed)), plan)
    return list(traffic), traffic.events


# ── Traffic and kills ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_traffic_has_every_event_with_duplicates_and_out_of_order() -> None:
    deliveries, events = delivered(Plan(deliveries=5_000))
    assert len(deliveries) == 5_000
    assert [delivery.number for delivery in deliveries] == list(range(1, 5_001))
    assert events == list(islice(SYSTEM.events(random.Random(1)), len(events))), "in the order in which they happened"
    copies = Counter(delivery.event.id for delivery in deliveries)
    assert set(copies) == {event.id for event in events}
    assert 2.3 < 5_000 / len(events) < 2.7
    assert min(copies.values()) == 1
    assert max(copies.values()) >= 5
    first_time = list(dict.fromkeys(delivery.event.id for delivery in deliveries))
    assert first_time != [event.id for event in events], "earlier ones are overtaken by later ones"
    assert sum(one.event == two.event for one, two in pairwise(deliveries)) > 1_000, (
        "two workers get the same event concurrently"
    )


def test_rates_are_what_the_plan_says() -> None:
    deliveries, events = delivered(Plan(deliveries=300, duplicates=0, reorder=0))
    assert [delivery.event for delivery in deliveries] == events
    deliveries, events = delivered(Plan(deliveries=300, duplicates=9))
    assert len(events) < 50


def test_the_same_seed_makes_the_same_traffic_and_the_same_kills() -> None:
    plan = Plan(deliveries=500, workers=4, kills=24)
    assert delivered(plan) == delivered(plan) != delivered(Plan(deliveries=500, workers=4, kills=24, seed=2))
    kills = planned_kills(plan)
    assert kills == planned_kills(plan) != planned_kills(Plan(deliveries=500, workers=4, kills=24, seed=2))
    assert len(kills) == 24
    assert all(0 < kill.after < 1 and 0 <= kill.delay <= 0.02 for kill in kills)
    assert {kill.victim for kill in kills} == {0, 1, 2, 3}
    assert len(planned_kills(Plan(seconds=20))) == 20
    assert len(planned_kills(Plan(deliveries=200))) == 4


def test_traffic_that_is_stopped_delivers_nothing_more_and_knows_what_it_has_delivered() -> None:
    traffic = Traffic(SYSTEM.events(random.Random(1)), Plan(seconds=1))
    begun = list(islice(traffic, 100))
    traffic.stop()
    assert list(traffic) == []
    assert {event.id for event in traffic.events} == {delivery.event.id for delivery in begun}


# ── The run and its audit ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("A7", "B2")
@pytest.mark.fault("F31", "F71")
def test_workers_killed_at_random_charge_each_order_once() -> None:
    run = storm(ORDERS, Plan(deliveries=500, workers=3, kills=6, pauses=1))
    assert run.audit == Audit(expected=run.events, effects=run.events, duplicates=[], lost=[], wrong=[]), run
    assert run.audit.passed
    assert (run.score.killed, run.score.paused) == (6, 1)
    assert run.score.redelivered > 0
    assert run.score.delivered >= 500 + run.score.redelivered
    assert run.score.acknowledged == 500
    assert run.score.executed <= run.events, "some workers died before they could acknowledge"


def test_the_same_traffic_without_onceward_fails_the_audit_which_names_the_duplicates() -> None:
    run = storm(ORDERS, Plan(deliveries=400, workers=4, kills=0, pauses=0, together=1.0, guarded=False))
    assert run.audit.duplicates, run
    assert all(name.startswith("order-") for name in run.audit.duplicates)
    assert not run.audit.passed


def test_a_timed_storm_takes_new_events_until_the_time_is_over_and_finishes_open_deliveries() -> None:
    run = storm(ORDERS, Plan(seconds=1, workers=2, kills=1))
    assert run.score.seconds >= 1
    assert run.events > 0
    assert run.audit.passed, run


def test_an_audit_passes_only_without_findings() -> None:
    assert Audit(expected=2, effects=2, counted={"mails": 3}).passed
    for found in ({"duplicates": ["a"]}, {"lost": ["a"]}, {"wrong": ["a: 7 instead of 8"]}):
        assert not Audit(expected=2, effects=2, **found).passed  # type: ignore[arg-type]  # one of them


def test_an_audit_compares_the_effects_with_the_events() -> None:
    audit = Audit.of([StormEvent("a"), StormEvent("b"), StormEvent("c")], ["a", "c", "c", "x"], counted={"calls": 9})
    assert (audit.expected, audit.effects) == (3, 4)
    assert (audit.duplicates, audit.lost, audit.wrong) == (["c"], ["b"], ["x: no event caused this effect"])
    assert audit.counted == {"calls": 9}
    both = audit + Audit.of([StormEvent("a"), StormEvent("b")], ["a", "a"], what="charge", wrong=["late"])
    assert (both.expected, both.effects) == (5, 6)
    assert both.duplicates == ["c", "charge of a"]
    assert both.lost == ["b", "charge of b"]
    assert both.wrong == ["x: no event caused this effect", "late"]


def test_an_outcome_means_for_a_delivery_what_it_means_for_a_consumer() -> None:
    assert HandlerResult.of(Executed(key="k", attempt=2)) == HandlerResult("executed", 2)
    assert HandlerResult.of(Replayed(key="k", attempt=2)) == HandlerResult("replayed"), (
        "it was taken over once, not at every replay"
    )
    assert HandlerResult.of(Failed(key="k", error_type="OSError", error="closed")) == HandlerResult(
        "failed", why="OSError: closed"
    )
    for outcome, acknowledged in (
        (Failed(key="k", final=True), True),
        (Mismatch(key="k"), True),
        (Parked(key="k"), True),
        (Stale(key="k"), True),
        (Running(key="k"), False),
        (Unknown(key="k"), False),
    ):
        assert (HandlerResult.of(outcome).kind in ACKNOWLEDGED) is acknowledged


# ── Trouble ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_that_exits_raises_trouble_with_its_last_output() -> None:
    with pytest.raises(Trouble, match=r"status 3 while it processed order-10(.|\n)*I have had enough"):
        storm("tests.chaos.orders:IMPATIENT", Plan(deliveries=100, workers=2, kills=0))
    assert storm_processes(os.getpid()) == []


def test_a_system_that_cannot_be_imported_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "only_here.py").write_text(ONLY_HERE)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Trouble, match=r"cannot be imported in a separate process(.|\n)*not in a worker"):
        storm("only_here:SYSTEM", Plan(deliveries=10))


ONLY_HERE = """
import sys
from tests.chaos.orders import SYSTEM
if "onceward.testing.storm.fork_server" in sys.orig_argv:
    raise ImportError("not in a worker")
"""


def test_a_system_with_threads_is_not_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "busy.py").write_text(BUSY)
    monkeypatch.syspath_prepend(tmp_path)
    run = storm("busy:SYSTEM", Plan(deliveries=60, workers=2, kills=1))
    assert run.audit.passed
    assert run.score.killed == 1


BUSY = """
import threading
from tests.chaos.orders import SYSTEM
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


def test_work_that_never_succeeds_is_given_up_with_its_reason() -> None:
    with pytest.raises(
        Trouble, match=r"no delivery was acknowledged for 1 s; unfinished: order-\d(.|\n)*cannot be done"
    ):
        storm("tests.chaos.orders:HOPELESS", Plan(deliveries=20, workers=1, kills=0, patience=1))
    assert storm_processes(os.getpid()) == []


def test_what_a_handler_prints_and_reads_does_not_disturb_the_storm(tmp_path: Path) -> None:
    run = storm("tests.chaos.orders:LOUD", Plan(deliveries=20, workers=1, kills=0, folder=str(tmp_path)))
    assert run.audit.passed
    assert "charging order-1" in (tmp_path / "workers.log").read_text(), "it is in the log of the workers"
    assert (tmp_path / "orders.db").exists(), "a folder that was asked for is kept"


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A storm of two workers."""
    allow_sigint = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # our parent may ignore it
    code = (
        f"{allow_sigint}; import sys; from onceward.testing.storm import main; sys.exit(main({ORDERS!r}, sys.argv[1:]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, "--seconds", "100", "--workers", "2", "--folder", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def under_way(supervisor: subprocess.Popen[str]) -> list[int]:
    """The fork server and both workers, once they are there."""
    await_that(lambda: len(storm_processes(supervisor.pid)) == 3, "they start")
    return storm_processes(supervisor.pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_no_process_behind(supervisor: subprocess.Popen[str], number: signal.Signals) -> None:
    begun = under_way(supervisor)
    supervisor.send_signal(number)
    _, said = supervisor.communicate(timeout=TOO_LONG)
    assert supervisor.returncode == 130
    assert "interrupted: nothing was audited" in said
    assert not [pid for pid in begun if is_alive(pid)]


def test_ctrl_c_while_workers_are_started_leaves_no_process_behind(supervisor: subprocess.Popen[str]) -> None:
    await_that(lambda: bool(storm_processes(supervisor.pid)), "the fork server starts")
    begun = storm_processes(supervisor.pid)
    supervisor.send_signal(signal.SIGINT)
    supervisor.communicate(timeout=TOO_LONG)
    assert not [pid for pid in begun if is_alive(pid)]


def test_workers_end_when_their_supervisor_is_killed(supervisor: subprocess.Popen[str]) -> None:
    begun = under_way(supervisor)
    supervisor.kill()
    await_that(lambda: not any(is_alive(pid) for pid in begun), "no process outlives the supervisor")


# ── The command ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_command_prints_what_was_counted_and_fails_if_the_audit_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(ORDERS, ["--deliveries", "100", "--workers", "2", "--kills", "1"]) == 0
    said = capsys.readouterr().out
    assert "orders passed" in said
    assert "duplicates 0, lost 0" in said
    assert "row in charges: exactly once" in said
    assert "1 workers were killed" in said
    assert "\x1b" not in said, "a pipe gets plain lines"
    unguarded = ["--unguarded", "--deliveries", "400", "--kills", "0", "--pauses", "0"]
    assert main(ORDERS, unguarded, Plan(together=1.0)) == 1
    said = capsys.readouterr().out
    assert "orders FAILED" in said
    assert "  duplicate: order-" in said


def test_the_command_prints_everything_as_json_without_passwords(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--deliveries", "20", "--workers", "2", "--kills", "1", "--pauses", "1", "--json"]
    assert main(ORDERS, [*asked, "--store", "memory://?password=secret"]) == 0
    said = capsys.readouterr().out
    assert "secret" not in said
    printed = msgspec.json.decode(said)
    assert (printed["plan"]["pauses"], printed["score"]["paused"], printed["score"]["killed"]) == (1, 1, 1)
    assert printed["audit"]["duplicates"] == printed["audit"]["lost"] == []


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("tests.chaos.orders:NOPE", "tests.chaos.orders has no 'NOPE'"),
        ("tests.chaos.nope:SYSTEM", "tests.chaos.nope cannot be imported"),
        ("tests.chaos.orders", "'tests.chaos.orders' is not the path of an object"),
        ("tests.chaos.orders:TABLE", "tests.chaos.orders:TABLE is not a System: it lacks name"),
        ("tests.chaos.orders:Orders", "tests.chaos.orders:Orders is a class"),
    ],
)
def test_an_invalid_system_is_reported_in_one_line(place: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(place) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"cannot start the storm: {why}")
    assert said.count("\n") == 1


def test_a_folder_that_cannot_be_created_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(ORDERS, ["--folder", str(tmp_path / "file")]) == 1
    assert f"the folder {tmp_path / 'file'} cannot be created" in capsys.readouterr().err


def test_the_module_is_the_same_command() -> None:
    for asked, code, said in (
        (["tests.chaos.orders:NOPE"], 2, "cannot start the storm"),
        (["--help"], 0, "usage: "),
        ([], 2, "usage: "),
    ):
        command = [sys.executable, "-m", "onceward.testing.storm", *asked]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, (done.stdout + done.stderr)[: len(said)]) == (code, said)


def test_the_command_reports_a_system_that_cannot_be_opened(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("examples.submissions.storm:SYSTEM", ["--store", "nosuch://place"]) == 1
    assert "nosuch" in capsys.readouterr().err


def test_an_unreachable_store_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(ORDERS, ["--store", "redis://127.0.0.1:1"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("cannot start the storm: redis://127.0.0.1:1")


def test_the_command_reports_why_it_could_not_finish(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("tests.chaos.orders:IMPATIENT", ["--deliveries", "100", "--workers", "1", "--kills", "0"]) == 1
    assert "I have had enough" in capsys.readouterr().err
