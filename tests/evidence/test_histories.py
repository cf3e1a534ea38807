"""Recorded histories of real concurrent runs are linearizable, key by key. The long version is `histories`."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward.protocol.requests import Verdict
from onceward.stores.memory.store import MemoryStore
from onceward.testing.history import Report, assert_linearizable, check
from tests.evidence.planted import get_then_put_by_threads, hunt, storms
from tests.evidence.runs import RUNS, Recorded

SEED = 3
QUICK = {name for name in RUNS if name.startswith("memory") and "distance" not in name}
"""A store in memory answers immediately: whether calls overlap is random, and among tasks they never do."""

UNANSWERED = [name for name in RUNS if "lost" in name or "wait for" in name]
KILLED = [name for name in RUNS if "killed" in name]


@pytest.mark.mission("A3", "A7", "B2", "B7", "C2")
@pytest.mark.rival(18, 20)
@pytest.mark.fault("F30", "F40", "F41", "F53")
@pytest.mark.parametrize("name", RUNS)
def test_a_real_concurrent_run_is_linearizable(name: str, tmp_path: Path) -> None:
    """Run until enough has happened: on a busy machine, one run has few calls."""
    seen = Seen()
    for seed in range(SEED, SEED + 20):
        (tmp_path / str(seed)).mkdir()
        recorded = RUNS[name](tmp_path / str(seed), seed, 1)
        report = check(recorded.operations)
        if report.undecided and not report.violations:  # many overlapping calls, which take too long to check
            continue
        assert report.linearizable, str(report)
        seen.add(recorded, report)
        if not seen.missing(name):
            break
    assert not seen.missing(name)


class Seen:
    """What has happened in all runs together."""

    def __init__(self) -> None:
        self.operations = self.overlapping = self.unanswered = self.taken_over = self.kills = 0

    def add(self, recorded: Recorded, report: Report) -> None:
        self.operations += report.operations
        self.overlapping += report.overlapping
        self.unanswered += report.unanswered
        self.taken_over += recorded.taken_over
        self.kills += recorded.kills

    def missing(self, name: str) -> list[str]:
        """Return why these runs do not test enough."""
        wanted = {
            "few calls": self.operations > 200,
            "no takeovers": self.taken_over > 0,
            "no calls overlapped": name in QUICK or self.overlapping > 50,
            "every answer arrived": name not in UNANSWERED or self.unanswered > 0,
            "few processes were killed": name not in KILLED or self.kills > 5,
        }
        return [reason for reason, holds in wanted.items() if not holds]


@pytest.mark.fault("F30")
def test_some_processes_are_killed_between_a_request_and_its_answer(tmp_path: Path) -> None:
    for seed in range(10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        recorded = RUNS["sqlite, processes killed"](folder, seed, 1)
        report = assert_linearizable(recorded.operations)
        if report.unanswered:
            break
    assert report.unanswered


def test_the_load_gets_every_verdict_that_there_is_but_that_of_a_newer_version() -> None:
    verdicts, wanted = set(), set(Verdict) - {Verdict.SKEW}
    for history in storms(MemoryStore, seeds=200):  # eight are enough, unless the machine is busy
        assert_linearizable(history)
        verdicts |= {one.answer.verdict for one in history if one.answer is not None}
        if verdicts == wanted:
            break
    assert verdicts == wanted


def test_a_tiny_store_is_linearizable_as_long_as_it_holds_its_lock(tmp_path: Path) -> None:
    assert not hunt(get_then_put_by_threads(tmp_path, seeds=2, locked=True)).found


def test_nothing_recorded_is_nothing_wrong() -> None:
    assert check([]).linearizable
