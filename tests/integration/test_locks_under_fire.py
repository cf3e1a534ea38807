"""Locks between real processes, some of them killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calls import until
from tests.servers.redis import shared

pytestmark = pytest.mark.mission("C2")


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
