"""SIGKILL before every single call that changes a file or makes a change last, in each way of working."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.kill_harness import SYNCS, WRITES, Kill, KilledRun, KillHarness, missing, scratch

MIN_CALLS = {"plain": 60, "parking": 35, "within": 60, "complete_in": 50}
"""Minimum number of calls of a delivery. Fewer would mean that most were not traced."""


@pytest.fixture(autouse=True, scope="module")
def _strace() -> None:
    """Skip without strace on a developer's machine, but fail in CI."""
    reason = missing()
    if reason is not None and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def folder() -> Iterator[Path]:
    with scratch() as folder:
        yield folder


def kill_everywhere(harness: KillHarness, cycle: str, *, torn: bool = False) -> list[KilledRun]:
    """Kill once before each call, and check that there is no further call to kill at."""
    kills = harness.kills(cycle)
    killed_runs = [harness.run_with_kills(cycle, [kill], torn=torn) for kill in kills]
    assert all(one.steps[0].killed for one in killed_runs), "each was really killed"
    for call, count in Counter(kill.call for kill in kills).items():
        assert not harness.run_with_kills(cycle, [Kill(call, count + 1, "")]).steps[0].killed, (
            f"there is another {call}"
        )
    print(f"{cycle}: killed before each of {len(kills)} calls: {tally(kills)}")
    return killed_runs


def tally(kills: list[Kill]) -> str:
    return ", ".join(f"{number} × {call} {file}" for (call, file), number in Counter(k[::2] for k in kills).items())


def wrong(killed_runs: list[KilledRun]) -> dict[str, list[str]]:
    return {str(*one.kills): one.violations for one in killed_runs if one.violations}


@pytest.mark.fault("F30", "F31")
@pytest.mark.mission("A1", "B1")
@pytest.mark.parametrize("cycle", ["within", "complete_in"])
def test_killed_before_any_call_a_row_and_its_record_are_both_there_once_or_neither_is(
    cycle: str, folder: Path
) -> None:
    with KillHarness(folder) as harness:
        killed_runs = kill_everywhere(harness, cycle)
    assert wrong(killed_runs) == {}
    assert len(killed_runs) >= MIN_CALLS[cycle]
    covers_the_life_of_a_log({one.kills[0][::2] for one in killed_runs})
    left = {one.steps[0].after.state for one in killed_runs}
    assert left == ({"", "COMPLETED"} if cycle == "within" else {"", "PENDING", "COMPLETED"}), "killed in every phase"
    before_the_commit = [
        one for one in killed_runs if not one.steps[0].after.rows and one.kills[0].file == "once.db-wal"
    ]
    assert len(before_the_commit) > 10, "pages of the open transaction were in the log"


def covers_the_life_of_a_log(where: set[tuple[str, ...]]) -> None:
    """Check that the calls range from the first write of the log over the checkpoint to its removal."""
    done = {(_kind(call), file) for call, file in where}
    log = {("write", "once.db-wal"), ("sync", "once.db-wal"), ("unlink", "once.db-wal")}
    checkpoint = {("write", "once.db"), ("sync", "once.db")}
    shared_memory = {("write", "once.db-shm"), ("unlink", "once.db-shm")}
    assert log | checkpoint | shared_memory <= done


def _kind(call: str) -> str:
    return "write" if call in WRITES else "sync" if call in SYNCS else call.removesuffix("at")


@pytest.mark.fault("F31")
@pytest.mark.parametrize("cycle", ["within", "complete_in"])
def test_the_same_while_another_process_has_the_file_open(cycle: str, folder: Path) -> None:
    """Then no process rebuilds the shared memory: the others use what the killed process left in it."""
    with KillHarness(folder, neighbour=True) as harness:
        killed_runs = kill_everywhere(harness, cycle)
    assert wrong(killed_runs) == {}
    assert len(killed_runs) >= 40


@pytest.mark.fault("F31")
def test_the_same_if_only_half_of_the_last_write_got_there(folder: Path) -> None:
    with KillHarness(folder) as harness:
        if not any(kill[::2] == ("pwrite64", "once.db-wal") for kill in harness.kills("complete_in")):
            pytest.skip("this SQLite was built to seek and write in two calls: the log of calls does not show where")
        killed_runs = kill_everywhere(harness, "complete_in", torn=True)
        assert harness.torn > 30
    assert wrong(killed_runs) == {}


@pytest.mark.fault("F30")
@pytest.mark.mission("B1")
def test_from_the_first_byte_of_a_new_file_on_a_plain_effect_under_rerun_is_never_lost(folder: Path) -> None:
    """An acknowledged effect is not lost either, and does not happen again."""
    with KillHarness(folder, fresh=True) as harness:
        killed_runs = kill_everywhere(harness, "plain")
    assert wrong(killed_runs) == {}
    assert len(killed_runs) >= MIN_CALLS["plain"]
    assert {one.steps[-1].after.entries for one in killed_runs} == {1, 2}, (
        "at least once: this row has no stronger promise"
    )


@pytest.mark.fault("F30")
def test_a_plain_effect_under_park_never_happens_twice_and_never_vanishes_silently(folder: Path) -> None:
    with KillHarness(folder) as harness:
        killed_runs = kill_everywhere(harness, "parking")
    assert wrong(killed_runs) == {}
    assert len(killed_runs) >= MIN_CALLS["parking"]
    assert {one.steps[-1].reported[0] for one in killed_runs} == {"parked", "replayed"}


@pytest.mark.parametrize(
    ("cycle", "what"),
    [
        ("row_apart_from_its_record", "1 rows, and the record is PENDING"),
        ("record_before_its_row", "recorded, but it did not happen"),
        ("reported_before_the_commit", "reported executed, but the record is missing"),
        ("parking_forgotten", "its outcome was unknown, and it ran again"),
    ],
)
def test_the_same_audit_catches_what_is_broken_on_purpose(cycle: str, what: str, folder: Path) -> None:
    with KillHarness(folder) as harness:
        found = (harness.run_with_kills(cycle, [kill]).violations for kill in reversed(harness.kills(cycle)))
        assert any(what in one for violations in found for one in violations)


@pytest.mark.parametrize("cycle", ["plain", "parking", "complete_in", "within"])
def test_no_outcome_is_reported_before_the_log_is_synced(cycle: str, folder: Path) -> None:
    """A kill does not affect the page cache, so it cannot show what FULL is for. The order of the calls can."""
    with KillHarness(folder) as harness:
        calls = harness.kills(cycle)
    first, *_, last = report_calls(calls)
    assert log_before(last, calls)[-1] == "sync", "the outcome is reported"
    if cycle == "within":
        assert log_before(first, calls) == [], "the work begins inside of the transaction, with nothing written at all"
    else:
        assert log_before(first, calls)[-1] == "sync", "the work begins when the claim is synced"


def test_with_less_than_full_the_outcome_is_reported_before_the_sync(folder: Path) -> None:
    with KillHarness(folder) as harness:
        calls = harness.kills("unsynced")
    assert [log_before(report_call, calls)[-1] for report_call in report_calls(calls)] == ["write", "write"]


def report_calls(calls: list[Kill]) -> list[int]:
    """Return the positions of the calls that report something: that the work begins, and finally its outcome."""
    return [at for at, one in enumerate(calls) if (one.call, one.file) == ("write", "report.txt")]


def log_before(report_call: int, calls: list[Kill]) -> list[str]:
    """Return the calls on the log up to this call."""
    return [
        _kind(one.call) for one in calls[:report_call] if one.file == "once.db-wal" and one.call in {*WRITES, *SYNCS}
    ]
