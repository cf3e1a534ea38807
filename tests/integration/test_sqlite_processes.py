"""Several processes on one file: races, forks, kills and sleeps."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onceward.protocol.requests import Verdict
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore
from tests.integration.sqlite_workers import claim, ident, opened, request

ROOT = Path(__file__).parents[2]


def start(verb: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.integration.sqlite_workers", verb, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read_line(worker: subprocess.Popen[str]) -> Any:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line and worker.stderr is not None:
        pytest.fail(f"the worker printed nothing more: {worker.stderr.read()}")
    return json.loads(line)


@contextmanager
def ending(*workers: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
        for worker in workers:
            worker.wait(60)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def ask(verb: str, *arguments: object) -> Any:
    worker = start(verb, *arguments)
    with ending(worker):
        return read_line(worker)


def together(workers: list[subprocess.Popen[str]], go: Path) -> list[Any]:
    with ending(*workers):
        for worker in workers:
            assert read_line(worker) == {"ready": True}
        go.touch()
        return [read_line(worker) for worker in workers]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "once.db"


@pytest.mark.fault("F67")
def test_eight_processes_open_a_new_file_concurrently_and_all_succeed(path: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    workers = [start("open_new", path, go) for _ in range(8)]
    assert together(workers, go) == [{"acquired": True}] * 8
    store = opened(str(path))
    assert sum(run(store.counts(timeout=5)).values()) == 8
    run(store.close())


@pytest.mark.mission("A3")
@pytest.mark.rival(18)
@pytest.mark.parametrize("size", [1, 40])
def test_of_several_processes_exactly_one_acquires_each_key(path: Path, tmp_path: Path, size: int) -> None:
    go = tmp_path / "go"
    workers = [start("claim_all", path, go, 200, "up", size) for _ in range(4)]
    acquired = sorted(word for said in together(workers, go) for word in said["mine"])
    assert acquired == list(range(200))


@pytest.mark.fault("F39")
def test_batches_in_opposite_order_of_keys_do_not_deadlock(path: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    workers = [start("claim_all", path, go, 2_000, order, 500) for order in ("up", "down")]
    acquired = sorted(word for said in together(workers, go) for word in said["mine"])
    assert acquired == list(range(2_000))


@pytest.mark.fault("F31")
@pytest.mark.mission("A1")
def test_killed_inside_the_users_transaction_neither_effect_nor_claim_are_there(path: Path) -> None:
    store = opened(str(path))
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE effects (word TEXT)")
    worker = start("die_in_a_transaction", path)
    with ending(worker):
        assert read_line(worker) == {"verdict": "acquired"}
    assert worker.returncode == -signal.SIGKILL
    assert connection.execute("SELECT * FROM effects").fetchall() == []
    connection.close()
    assert claim(store, "order 7") is not None, "as if never claimed"
    run(store.close())


@pytest.mark.fault("F30")
def test_killed_inside_the_stores_own_transaction_nothing_is_half_written(path: Path) -> None:
    worker = start("die_in_a_write", path)
    worker.communicate(timeout=60)
    assert worker.returncode == -signal.SIGKILL
    store = opened(str(path))
    answer = run(store.read([ident("before")], timeout=5))[0]
    assert answer.record is not None
    assert answer.record.state == "PENDING"
    run(store.close())


@pytest.mark.fault("F32", "F41")
@pytest.mark.rival(1)
@pytest.mark.parametrize(("replaced", "verdict"), [(True, "lost"), (False, "ok")])
def test_an_owner_that_slept_longer_than_its_lease_is_refused_only_if_another_owner_took_over(
    path: Path, replaced: bool, verdict: str
) -> None:
    store = opened(str(path))
    worker = start("late_owner", path, 30_000)
    with ending(worker):
        token = read_line(worker)["token"]
        os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WNOWAIT)
        time.sleep(0.04)
        if replaced:
            mine = claim(store, "order 7")
            assert mine is not None
            assert mine.token > token
        os.kill(worker.pid, signal.SIGCONT)
        assert read_line(worker) == {"verdict": verdict}
    record = run(store.read([ident("order 7")], timeout=5))[0].record
    assert record is not None
    assert (record.state, record.result) == (("PENDING", None) if replaced else ("COMPLETED", b"late"))
    run(store.close())


@pytest.mark.fault("F34")
@pytest.mark.rival(29)
def test_after_a_fork_both_sides_work_and_the_child_loses_nothing_when_the_parent_closes(path: Path) -> None:
    said = ask("fork_and_close", path)
    assert said == {"parent": True, "child": {"before": True, "after": True, "taken": True, "woken": 0}}
    store = opened(str(path))
    answers = run(store.read([ident(word) for word in ("parent 1", "parent 2", "child 1", "child 2")], timeout=5))
    assert [answer.verdict for answer in answers] == [Verdict.OK] * 4
    run(store.close())


@pytest.mark.fault("F34", "F60")
@pytest.mark.rival(29)
def test_a_connection_of_the_user_that_crosses_a_fork_costs_an_error_never_a_claim(path: Path) -> None:
    assert ask("fork_with_a_user_connection", path) == {"child": "StoreBroken"}


@pytest.mark.fault("F34")
@pytest.mark.rival(29)
def test_a_fork_while_another_thread_is_inside_the_store_blocks_neither_process(path: Path) -> None:
    assert ask("fork_during_a_call", path) == {"child": True, "parent": True, "same": True}


@pytest.mark.fault("F34")
def test_a_store_that_an_event_loop_opened_works_in_a_forked_child(path: Path) -> None:
    assert ask("fork_after_a_loop", path) == {"parent": True, "child": [True, False]}


@pytest.mark.fault("F34")
def test_a_memory_store_refuses_to_protect_a_forked_child(path: Path) -> None:
    assert ask("fork_with_memory", path) == {"parent": True, "child": "StoreBroken", "after": True}


@pytest.mark.fault("F34")
def test_a_pickled_store_opens_the_same_file_in_another_process(path: Path) -> None:
    store = SQLiteStore(path)
    run(store.open(ThreadRuntime()))
    run(store.claim([request("a")], timeout=5))
    said = ask("unpickled", path, pickle.dumps(store).hex())
    assert said == {"same": True, "taken": True, "free": True}
    run(store.close())
