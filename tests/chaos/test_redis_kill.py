"""Eight workers on a Redis that is killed, restarted and paused while they work: nothing lost, nothing twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from onceward.protocol.ports import Filter
from onceward.protocol.record import RecordState
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.redis import RedisStore
from tests.servers.redis import RedisServer

WORKERS = 8
COPIES = 3  # deliveries of each key, to different workers
PATIENCE = 90.0  # seconds between two disturbances; a small run takes a few


def lines(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def until(wanted: Callable[[], bool], workers: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not wanted():
        assert time.monotonic() < deadline, "the run makes no progress"
        assert not any(one.poll() for one in workers), "a worker has failed"
        time.sleep(0.005)


def disturbed_run(folder: Path, keys: int, kills: int, pauses: int) -> None:
    """Start the workers, disturb the server after equal parts of their work, then audit the result."""
    server = RedisServer(settings=("--appendonly", "yes", "--appendfsync", "always", "--save", "")).begin()
    url = f"redis://127.0.0.1:{server.port}/0"
    dice = random.Random(keys)
    names = [f"key-{number}" for number in range(keys)]
    shares: list[list[str]] = [[] for _ in range(WORKERS)]
    for name in names:
        for share in dice.sample(shares, COPIES):
            share.append(name)
    for share in shares:
        dice.shuffle(share)
    command = [sys.executable, "-m", "tests.chaos.redis_worker", url, str(folder)]
    workers = [
        subprocess.Popen([*command, "async" if number % 2 else "blocking", ",".join(share)])
        for number, share in enumerate(shares)
    ]
    acks, total, disturbances = folder / "acks", keys * COPIES, kills + pauses
    try:
        for number in range(disturbances):
            until(lambda: len(lines(acks)) >= total * (number + 1) // (disturbances + 2), workers)  # noqa: B023 (called immediately)
            if number % 2 and number // 2 < pauses:
                server.send(signal.SIGSTOP)
                time.sleep(0.2)
                server.send(signal.SIGCONT)
            else:
                server.kill()
                server.begin()
        until(lambda: all(one.poll() is not None for one in workers), workers)
        audit(folder, names, url)
    finally:
        for one in workers:
            one.kill()
            one.wait()
        server.end()


def audit(folder: Path, names: list[str], url: str) -> None:
    effects = Counter(key for (key,) in lines(folder / "effects"))
    assert effects == Counter(names), f"not once: {[one for one in effects.items() if one[1] != 1]}"
    acks = lines(folder / "acks")
    assert Counter(key for key, *_ in acks) == Counter(names * COPIES)
    assert all(right == "True" for *_, right in acks), "a replay gave another result"
    store = RedisStore(url)
    run(store.open(ThreadRuntime()))
    page = run(store.scan(Filter(), cursor=None, limit=10 * len(names), timeout=30))
    assert {(one.key, one.state) for one in page.records} == {(name, RecordState.COMPLETED) for name in names}
    run(store.close())


@pytest.mark.fault("F50", "F51", "F52", "F53")
@pytest.mark.rival(18, 20, 21)
def test_eight_workers_outlive_a_server_that_is_killed_and_stopped(tmp_path: Path) -> None:
    disturbed_run(tmp_path, keys=160, kills=2, pauses=1)
