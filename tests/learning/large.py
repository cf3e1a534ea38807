"""A backlog of statements through a real queue into DuckDB, by a consumer that is killed on its way."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import redis

from examples.learning.backlog import GROUP, REPEAT_EVERY, DrainResult, fill
from examples.learning.memory_usage import QUARTERS
from tests.servers.redis import RedisServer

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 300.0  # seconds without any progress


SOUND, LEAKING = "examples.learning", "tests.learning.leaking"
"""The consumer, and one with a planted leak, which has to be found."""

MORE = 24
"""MiB that the last half of the way may add: to what the process mostly has, and to the most that it had."""

LONG = 15_000  # messages of one run, from which on its memory is measured
LONGER = 150_000  # at most: by then DuckDB has checkpointed its log several times


class Figures(NamedTuple):
    """The counted figures. `wrong` is empty if everything is right."""

    messages: int
    statements: int
    duplicates: int
    deaths: int
    messages_of_the_last_run: int
    seconds_of_the_last_run: float
    cpu_seconds_of_the_last_run: float
    peak_mib: list[int]
    resident_mib: list[int]
    lines_of_progress: int
    wrong: list[str]


def large(messages: int, deaths: int, largest: int = 2_000, program: str = SOUND) -> Figures:
    """Send this many messages, every fifth a repeat; kill the consumer this many times, evenly spread."""
    stream = "statements"
    with tempfile.TemporaryDirectory(prefix="onceward-backlog-") as folder, _server() as server:
        url = f"redis://127.0.0.1:{server.port}/0"
        fill(url, stream, messages)
        command = [sys.executable, "-m", program, "consume", "--folder", folder, "--queue", url]
        command += ["--size", str(messages), "--largest", str(largest), "--ack-deadline", "2"]
        wrong: list[str] = []
        with redis.Redis.from_url(url) as client, (Path(folder) / "said").open("w+") as said:
            for death in range(1, deaths + 1):
                wrong += _killed(command, said, client, stream, messages * death // (deaths + 1))
            done = subprocess.run(command, cwd=ROOT, stdout=said, text=True, check=False, timeout=PATIENCE * 4)
            said.seek(0)
            lines = said.read().splitlines()
    if done.returncode:
        wrong.append(f"the last run: {done.returncode}")
        return Figures(messages, 0, 0, deaths, 0, 0.0, 0.0, [], [], len(lines), wrong)
    result = msgspec.json.decode(lines[-1], type=DrainResult)
    expected = messages - messages // REPEAT_EVERY
    if result.statements != expected:
        wrong.append(f"{result.statements} statements instead of {expected}")
    if result.parked:
        wrong.append(f"{result.parked} repeats were taken for other statements")
    if result.messages >= LONG:
        wrong += growing("it mostly had", result.resident_mib)
    if result.messages >= LONGER:
        wrong += growing("the most it had was", result.peak_mib)
    return Figures(
        messages,
        result.statements,
        messages - expected,
        deaths,
        result.messages,
        round(result.seconds, 2),
        round(result.cpu_seconds, 2),
        result.peak_mib,
        result.resident_mib,
        len(lines) - 1,
        wrong,
    )


def growing(what: str, quarters: list[int]) -> list[str]:
    """Return what is wrong with the memory, in MiB by quarters of the run: the last half adds too much.

    A consumer that started in the middle includes its own startup, and is not judged.
    """
    if len(quarters) < QUARTERS or quarters[-1] - quarters[1] <= MORE:
        return []
    return [f"it took more and more memory: {what} {quarters} MiB"]


def _killed(command: list[str], said: IO[str], client: redis.Redis, stream: str, at: int) -> list[str]:
    """Kill the consumer once this many messages were delivered."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=said, text=True)
    try:
        ends = time.monotonic() + PATIENCE
        while _handed_out(client, stream) < at:
            if process.poll() is not None or time.monotonic() > ends:
                return [f"it ended by itself before message {at}: {process.returncode}"]
            time.sleep(0.005)
    finally:
        process.kill()
        process.wait()
    return [] if _left(client, stream) else [f"nothing was left when it was killed at message {at}"]


def _handed_out(client: redis.Redis, stream: str) -> int:
    return sum(int(one["entries-read"] or 0) for one in _groups(client, stream))


def _left(client: redis.Redis, stream: str) -> int:
    return sum(int(one["pending"]) + int(one["lag"] or 0) for one in _groups(client, stream))


def _groups(client: redis.Redis, stream: str) -> list[dict[str, Any]]:
    found: Any = client.xinfo_groups(stream)
    return [one for one in found if one["name"] == GROUP.encode()]


@contextmanager
def _server() -> Iterator[RedisServer]:
    server = RedisServer().begin()
    try:
        yield server
    finally:
        server.end()


def main(arguments: list[str]) -> int:
    messages, deaths = map(int, arguments)
    figures = large(messages, deaths)
    print(*(f"{name.replace('_', ' ')}: {figure}" for name, figure in figures._asdict().items()), sep="\n")
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
