"""SIGKILL before every single call that changes a file or makes a change last, in each way of working."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.strikes import SYNCS, WRITES, Kill, Stage, Struck, missing, scratch

FEWEST = {"plain": 60, "parking": 35, "within": 60, "complete_in": 50}
"""Calls that a delivery makes at least. Fewer would mean that most were not noticed."""


@pytest.fixture(autouse=True, scope="module")
def _strace() -> None:
    """Whoever cannot trace at home may go without; nothing lands that nobody has tried to kill."""
    reason = missing()
    if reason is not None and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def folder() -> Iterator[Path]:
    with scratch() as folder:
        yield folder


def strike_everywhere(stage: Stage, cycle: str, *, torn: bool = False) -> list[Struck]:
    """One kill at a time, before each call; after the last one there is nothing left to be killed at."""
    kills = stage.kills(cycle)
    struck = [stage.strike(cycle, [kill], torn=torn) for kill in kills]
    assert all(one.steps[0].killed for one in struck), "each was really killed"
    for call, count in Counter(kill.call for kill in kills).items():
        assert not stage.strike(cycle, [Kill(call, count + 1, "")]).steps[0].killed, f"there is another {call}"
    print(f"{cycle}: killed before each of {len(kills)} calls: {tally(kills)}")
    return struck


def tally(kills: list[Kill]) -> str:
    return ", ".join(f"{number} × {call} {file}" for (call, file), number in Counter(k[::2] for k in kills).items())


def wrong(struck: list[Struck]) -> dict[str, list[str]]:
    return {str(*one.kills): one.violations for one in struck if one.violations}


@pytest.mark.fault("F30", "F31")
@pytest.mark.mission("A1", "B1")
@pytest.mark.parametrize("cycle", ["within", "complete_in"])
def test_killed_before_any_call_a_row_and_its_record_are_both_there_once_or_neither_is(
    cycle: str, folder: Path
) -> None:
    with Stage(folder) as stage:
        struck = strike_everywhere(stage, cycle)
    assert wrong(struck) == {}
    assert len(struck) >= FEWEST[cycle]
    covers_the_life_of_a_log({one.kills[0][::2] for one in struck})
    left = {one.steps[0].after.state for one in struck}
    assert left == ({"", "COMPLETED"} if cycle == "within" else {"", "PENDING", "COMPLETED"}), "killed in every phase"
    before_the_commit = [one for one in struck if not one.steps[0].after.rows and one.kills[0].file == "once.db-wal"]
    assert len(before_the_commit) > 10, "pages of the open transaction were in the log"


def covers_the_life_of_a_log(where: set[tuple[str, ...]]) -> None:
    """From its first write over the checkpoint to its removal."""
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
    """Then nobody rebuilds the shared memory afterwards: what the dead one left in it is what the others go by."""
    with Stage(folder, beside=True) as stage:
        struck = strike_everywhere(stage, cycle)
    assert wrong(struck) == {}
    assert len(struck) >= 40


@pytest.mark.fault("F31")
def test_the_same_if_only_half_of_the_last_write_got_there(folder: Path) -> None:
    with Stage(folder) as stage:
        if not any(kill[::2] == ("pwrite64", "once.db-wal") for kill in stage.kills("complete_in")):
            pytest.skip("this SQLite was built to seek and write in two calls: the log of calls does not tell where")
        struck = strike_everywhere(stage, "complete_in", torn=True)
        assert stage.torn > 30
    assert wrong(struck) == {}


@pytest.mark.fault("F30")
@pytest.mark.mission("B1")
def test_from_the_first_byte_of_a_new_file_on_a_plain_effect_under_rerun_is_never_lost(folder: Path) -> None:
    """Nor is what was acknowledged, nor does it happen again after that."""
    with Stage(folder, fresh=True) as stage:
        struck = strike_everywhere(stage, "plain")
    assert wrong(struck) == {}
    assert len(struck) >= FEWEST["plain"]
    assert {one.steps[-1].after.entries for one in struck} == {1, 2}, "at least once: this is the row without a promise"


@pytest.mark.fault("F30")
def test_a_plain_effect_under_park_never_happens_twice_and_never_vanishes_silently(folder: Path) -> None:
    with Stage(folder) as stage:
        struck = strike_everywhere(stage, "parking")
    assert wrong(struck) == {}
    assert len(struck) >= FEWEST["parking"]
    assert {one.steps[-1].told[0] for one in struck} == {"parked", "replayed"}


@pytest.mark.parametrize(
    ("cycle", "what"),
    [
        ("row_apart_from_its_record", "1 rows, and the record is PENDING"),
        ("record_before_its_row", "recorded, but it did not happen"),
        ("told_before_the_commit", "told executed, but the record is missing"),
        ("parking_forgotten", "nobody knew whether it had happened, and it ran again"),
    ],
)
def test_the_same_audit_catches_what_is_broken_on_purpose(cycle: str, what: str, folder: Path) -> None:
    with Stage(folder) as stage:
        found = (stage.strike(cycle, [kill]).violations for kill in reversed(stage.kills(cycle)))
        assert any(what in one for violations in found for one in violations)


@pytest.mark.parametrize("cycle", ["plain", "parking", "complete_in", "within"])
def test_nothing_is_said_to_be_so_before_the_log_was_synced(cycle: str, folder: Path) -> None:
    """A kill leaves the page cache alone, so it cannot show what FULL is for. The order of the calls can."""
    with Stage(folder) as stage:
        calls = stage.kills(cycle)
    first, *_, last = words(calls)
    assert log_before(last, calls)[-1] == "sync", "told how it went"
    if cycle == "within":
        assert log_before(first, calls) == [], "the work begins inside of the transaction, with nothing written at all"
    else:
        assert log_before(first, calls)[-1] == "sync", "the work begins when the claim is safe"


def test_with_less_than_full_it_would_be(folder: Path) -> None:
    with Stage(folder) as stage:
        calls = stage.kills("unsynced")
    assert [log_before(word, calls)[-1] for word in words(calls)] == ["write", "write"]


def words(calls: list[Kill]) -> list[int]:
    """Where in the calls something is said: that the work begins, and at last how it went."""
    return [at for at, one in enumerate(calls) if (one.call, one.file) == ("write", "said.txt")]


def log_before(word: int, calls: list[Kill]) -> list[str]:
    """What was done to the log until then."""
    return [_kind(one.call) for one in calls[:word] if one.file == "once.db-wal" and one.call in {*WRITES, *SYNCS}]
