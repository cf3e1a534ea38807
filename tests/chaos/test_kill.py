"""Real processes on one SQLite file, killed and paused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import (
    AsyncOnce,
    Once,
    OutcomeParked,
    RecordState,
    StoreUnavailable,
    applied,
    current_async_claim,
    current_claim,
)
from onceward.stores.sqlite import SQLiteStore
from tests.chaos import victim
from tests.chaos.processes import await_that
from tests.chaos.victim import TABLE, call, client, entries, find, insert, policy, send, write_fenced

ROOT = Path(__file__).parents[2]
LEASE = 1.5
"""Seconds, as in the victims."""


class Victim:
    """A child process that prints its progress."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.victim", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
        )

    def until(self, word: str) -> list[str]:
        """Read until it prints a line with this first word. Return the rest of that line."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = line.split()
            if said and said[0] == word:
                return said[1:]
        assert self._process.stderr is not None
        raise AssertionError(f"it ended without saying {word!r}: {self._process.stderr.read()}")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop_outside_a_write(self, path: str) -> None:
        """Stop it while it does not hold the write lock of the file: its heartbeat may be writing at this moment."""
        with contextlib.closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
            while True:
                self.send(signal.SIGSTOP)
                os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)
                try:
                    connection.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError:
                    self.send(signal.SIGCONT)
                else:
                    connection.execute("ROLLBACK")
                    return

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=60)

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def remaining_output(self) -> tuple[list[str], str]:
        out, err = self._process.communicate(timeout=60)
        return out.splitlines(), err


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[Victim]:
    one = Victim(*arguments)
    try:
        yield one
    finally:
        one.close()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "once.db")


@pytest.fixture(params=["blocking", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def survivor(mode: str, path: str, **settings: Any) -> Any:
    """A client in this process, of the same application."""
    return client(mode, SQLiteStore(path), **settings)


def close(mode: str, once: Any) -> None:
    if mode == "blocking":
        once.close(timeout=0)
    else:
        asyncio.run(once.close(timeout=0))


def rows(path: str) -> list[str]:
    with contextlib.closing(sqlite3.connect(path, timeout=10)) as connection:
        return [item for (item,) in connection.execute("SELECT item FROM ledger ORDER BY item")]


def make_table(path: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(TABLE)
    with Once(SQLiteStore(path)) as once:
        once.read("opens the store")


# ── F30: killed between the effect and its record ──


@pytest.mark.fault("F30")
@pytest.mark.mission("B1")
def test_killed_before_the_record_under_rerun_the_next_delivery_runs_again(mode: str, path: str) -> None:
    """At least once, as `rerun` promises, and the attempts are counted."""
    with started("die_completing", mode, path, "rerun") as one:
        one.until("completing")
        one.kill()
    assert entries(path) == ["sent"]
    once = survivor(mode, path)
    outcome = call(mode, once, "order 7", send, path)
    assert (outcome.kind, outcome.value, outcome.attempt) == ("executed", "receipt", 2)
    assert entries(path) == ["sent", "sent"]
    assert call(mode, once, "order 7", send, path).replayed
    close(mode, once)


@pytest.mark.fault("F30")
def test_killed_before_the_record_under_park_nothing_runs_until_an_operator_resolves_it(mode: str, path: str) -> None:
    with started("die_completing", mode, path, "park") as one:
        one.until("completing")
        one.kill()
    time.sleep(LEASE)
    once = survivor(mode, path)  # its own policy is rerun: the stricter policy of the record applies
    for _ in range(2):
        with pytest.raises(OutcomeParked):
            call(mode, once, "order 7", send, path).unwrap()
    assert entries(path) == ["sent"]
    close(mode, once)
    with Once(SQLiteStore(path), app="chaos") as operator:
        operator.resolve("order 7", applied("receipt"))
        outcome = operator.outcome("order 7", send, path)
        assert (outcome.kind, outcome.value) == ("replayed", "receipt")
    assert entries(path) == ["sent"]


@pytest.mark.fault("F30")
def test_killed_before_the_record_under_verify_the_effect_is_found_and_not_repeated(mode: str, path: str) -> None:
    with started("die_completing", mode, path, "verify") as one:
        one.until("completing")
        one.kill()
    once = survivor(mode, path, after_crash=policy("verify"))
    outcome = call(mode, once, "order 7", send, path)
    assert (outcome.kind, outcome.reason, outcome.value) == ("replayed", "verified", "receipt")
    assert entries(path) == ["sent"]
    assert call(mode, once, "order 7", send, path).reason == "replayed"
    close(mode, once)


@pytest.mark.fault("F30")
def test_killed_before_the_effect_under_verify_it_is_not_found_and_done_once(mode: str, path: str) -> None:
    with started("die_before", mode, path, "verify") as one:
        one.until("about")
        one.kill()
    assert entries(path) == []
    once = survivor(mode, path, after_crash=policy("verify"))
    outcome = call(mode, once, "order 7", send, path)
    assert (outcome.kind, outcome.attempt) == ("executed", 2)
    assert entries(path) == ["sent"]
    assert find(path) == applied("receipt")
    close(mode, once)


@pytest.mark.fault("F30")
def test_a_killed_owner_holds_its_key_for_one_lease_and_no_longer(path: str) -> None:
    with started("die_before", "blocking", path, "rerun") as one:
        one.until("about")
        time.sleep(2 * LEASE)
        with Once(SQLiteStore(path), app="chaos", on_running="raise") as once:
            assert once.outcome("order 7", send, path).kind == "running", "alive, so it is renewed"
        one.kill()
    killed = time.monotonic()
    with Once(SQLiteStore(path), app="chaos", lease="10m", wait="60s") as once:
        assert once.outcome("order 7", send, path).executed
    assert time.monotonic() - killed < LEASE + 20


# ── F31: killed inside the caller's transaction ──


@pytest.mark.fault("F31")
@pytest.mark.parametrize("scenario", ["joined", "completed_in"])
def test_killed_before_the_commit_neither_effect_nor_record_is_there_and_the_next_one_does_both(
    scenario: str, path: str
) -> None:
    make_table(path)
    with started(scenario, "blocking", path, "before") as one:
        one.until("written")
        one.kill()
    assert rows(path) == []
    with started(scenario, "blocking", path, "after") as another:
        another.until("committed")
        another.kill()
    assert rows(path) == ["order 7"]


@pytest.mark.fault("F31")
@pytest.mark.parametrize("scenario", ["joined", "completed_in"])
def test_killed_after_the_commit_effect_and_record_are_both_there_and_nothing_runs_again(
    scenario: str, path: str
) -> None:
    make_table(path)
    with started(scenario, "blocking", path, "after") as one:
        one.until("committed")
        one.kill()
    with Once(SQLiteStore(path), app="chaos", fingerprint="none") as once:
        entry = once.read("order 7")
        assert entry is not None
        assert (entry.state, entry.value) == (RecordState.COMPLETED, "order 7")
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert once.outcome("order 7", insert, connection, "order 7").replayed
    assert rows(path) == ["order 7"]


@pytest.mark.fault("F31")
@pytest.mark.mission("A1")
@pytest.mark.timeout(1200)  # seven processes and 200 commits, on a machine that may be busy
def test_a_worker_that_is_killed_again_and_again_at_any_moment_does_every_item_exactly_once(path: str) -> None:
    make_table(path)
    dice = random.Random(7)
    count, kills = 200, 6
    done = [0]
    for _ in range(kills):
        with started("stream", "blocking", path, str(count)) as one:
            one.until("ready")
            seen = min(done[-1], count - 1)
            await_that(lambda seen=seen: len(rows(path)) > seen, "it makes progress")  # type: ignore[misc]  # binds now
            time.sleep(dice.uniform(0.0, 0.02))
            one.kill()
        done.append(len(rows(path)))
    with started("stream", "blocking", path, str(count)) as last:
        last.until("finished")
    assert any(0 < number < count for number in done), "killed too early or too late to prove anything"
    assert sorted(rows(path)) == sorted(f"item {number}" for number in range(count))


# ── F32, F33: stopped for longer than the lease ──


@pytest.mark.fault("F32", "F33")
@pytest.mark.rival(9)
def test_stopped_and_replaced_its_result_is_refused_and_a_fenced_resource_refuses_its_write(
    mode: str, path: str
) -> None:
    with started("pause_in_work", mode, path, "fenced") as one:
        (token,) = one.until("working")
        one.stop_outside_a_write(path)
        time.sleep(LEASE + 0.2)
        once = survivor(mode, path)
        mine: list[int] = []

        def work() -> str:
            claim = current_claim() if mode == "blocking" else current_async_claim()
            mine.append(claim.token)
            assert write_fenced(path, claim.token, "survivor") == 1
            return "survivor's"

        work.__module__, work.__qualname__ = victim.HERE, "work"
        outcome = call(mode, once, "order 7", work)
        assert (outcome.kind, outcome.attempt) == ("executed", 2)
        assert mine[0] > int(token)
        one.send(signal.SIGCONT)
        one.go()
        said, err = one.remaining_output()
        assert said == ["written 0", "unknown True"], err
        assert "lost" in err
        assert call(mode, once, "order 7", work).value == "survivor's"
        close(mode, once)


@pytest.mark.fault("F32")
def test_stopped_but_not_replaced_its_result_counts_as_late(mode: str, path: str) -> None:
    with started("pause_in_work", mode, path, "plain") as one:
        one.until("working")
        one.send(signal.SIGSTOP)
        time.sleep(2 * LEASE)
        one.send(signal.SIGCONT)
        one.go()
        said, err = one.remaining_output()
    assert said == ["executed False"], err
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT state, attempt FROM onceward_records").fetchall() == [(None, None)]


@pytest.mark.fault("F52", "F56")
def test_a_process_that_is_stopped_while_it_holds_the_write_lock_makes_the_others_fail_in_time(
    mode: str, path: str
) -> None:
    make_table(path)
    once = survivor(mode, path)
    assert call(mode, once, "before", send, path).executed
    with started("hold_the_lock", mode, path, "") as one:
        one.until("locked")
        one.send(signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            call(mode, once, "order 7", send, path)
        assert time.monotonic() - began < 10
        assert entries(path) == ["sent"], "only the one from before"
        one.send(signal.SIGCONT)
        one.go()
        one.remaining_output()
        assert call(mode, once, "order 7", send, path).executed
    close(mode, once)


@pytest.mark.fault("F34")
def test_async_mode_uses_the_async_client(path: str) -> None:
    assert isinstance(survivor("async", path), AsyncOnce)
