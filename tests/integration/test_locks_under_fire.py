"""Locks between real processes, some of them killed; and interrupts between any two steps of our own code."""

from __future__ import annotations

import contextvars
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceward import Once
from onceward.locks.flow import held_here, is_closed
from onceward.protocol.operation_names import LOCK
from onceward.protocol.record import RecordState
from tests.cli.calls import until
from tests.clients import Backend
from tests.integration.interrupts import Alarm, AlarmError, ignore_unawaited, interrupted_at
from tests.servers.redis import shared

__all__ = ["ignore_unawaited"]  # a fixture

pytestmark = pytest.mark.mission("C2")


def in_a_block(once: Once, name: str) -> None:
    with once.lock(name):
        pass


def by_hand(once: Once, name: str) -> None:
    lock = once.try_lock(name)
    assert lock is not None
    lock.release()


@pytest.mark.fault("F27")
@pytest.mark.usefixtures("ignore_unawaited")
@pytest.mark.parametrize(("way", "alarm"), [(in_a_block, Alarm), (by_hand, AlarmError)])
def test_an_interrupt_at_any_step_leaves_no_lock_taken(
    backend: Backend, way: Callable[[Once, str], None], alarm: type[BaseException]
) -> None:
    once = Once(backend.open(), lease="1h")
    in_a_block(once, "first")  # connected, and the heartbeat thread is running
    step = 1
    while True:
        name, here = f"lock {step}", contextvars.Context()
        if not here.run(interrupted_at, step, lambda name=name: way(once, name), alarm):  # type: ignore[misc]  # binds the loop's value
            break
        assert not once.heartbeat._holds, f"step {step}"
        assert all(is_closed(one) for one in here.run(held_here)), f"step {step}"
        entry = once.read(name, name=LOCK)
        assert entry is None or entry.state is not RecordState.PENDING, f"step {step}: {entry}"
        by_hand(once, name)
        step += 1
    assert step > 60
    once.close()


WORKER = """
    import sys, time
    from pathlib import Path
    from onceward import Once

    once = Once(sys.argv[4])
    counter, log = Path(sys.argv[1], "counter"), Path(sys.argv[1], "log")
    print("ready", flush=True)
    for _ in range(int(sys.argv[2])):
        with once.lock("counter", lease="3s", wait="60s") as lock:
            seen = int(counter.read_text())        # deliberately not atomic
            with log.open("a") as lines:
                lines.write(f"{lock.token} {lock.taken_over}\\n")
            if sys.argv[3] == "hangs":
                time.sleep(60)
            counter.write_text(str(seen + 1))
    once.close()
"""


def worker(folder: Path, times: int, url: str, manner: str = "works") -> subprocess.Popen[str]:
    script = [sys.executable, "-c", textwrap.dedent(WORKER), str(folder), str(times), manner, url]
    process: Any = subprocess.Popen(script, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process  # type: ignore[no-any-return]  # it is a Popen


@pytest.mark.fault("F30")
@pytest.mark.rival(18, 27)
@pytest.mark.parametrize("kind", ["sqlite", "valkey"])
def test_processes_count_behind_a_lock_and_a_killed_owner_blocks_them_no_longer_than_its_lease(
    kind: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/locks.db?synchronous=NORMAL"
    if kind == "valkey":
        url = shared().url(f"&prefix={tmp_path.name}")
    (tmp_path / "counter").write_text("0")
    (tmp_path / "log").touch()
    hanging = worker(tmp_path, 1, url, "hangs")
    until(lambda: (tmp_path / "log").read_text() != "")
    workers = [worker(tmp_path, 15, url) for _ in range(3)]
    os.kill(hanging.pid, signal.SIGKILL)  # while it holds the lock, alive until now: renewed again and again
    try:
        assert [process.wait(60) for process in workers] == [0, 0, 0]
    finally:
        for process in (hanging, *workers):
            process.kill()
            process.communicate()
    owners = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    tokens = [int(token) for token, _ in owners]
    assert (tmp_path / "counter").read_text() == "45"
    assert len(tokens) == 46
    assert tokens == sorted(set(tokens)), "each owner's token is above all before"
    assert [number for number, (_, taken_over) in enumerate(owners) if taken_over == "True"] == [1]
