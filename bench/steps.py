"""Where the time of a call is spent: `python -m bench --only steps`.

Each case is first timed without a profiler. Then it runs under the profiler of the standard library, whose result is
scaled to the first figure and added up by step. A profiler makes small functions look more expensive than they are, but
the share of each step is accurate enough.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.case import Call
from bench.cases_memory import decorated as in_memory
from bench.cases_sqlite import decorated as in_sqlite

STEPS = {
    "sqlite3": "the database",
    "time.": "clocks",
    "_contextvars": "the current claim",
    "keys/key": "the key and its hash",
    "keys/canonical": "the key and its hash",
    "_hashlib": "the key and its hash",
    "ormsgpack": "the key and its hash",
    "operation": "building the job from the arguments",
    "binding": "building the job from the arguments",
    "results/": "encoding the result",
    "keys/small": "encoding the result",
    "zlib": "encoding the result",
    "protocol/cells": "records",
    "protocol/transitions": "records",
    "stores/": "the store",
    "_thread": "locks",
    "heartbeat": "the heartbeat of the lease",
    "nonce": "the nonce",
    "observe/": "events and counters",
    "logging": "events and counters",
    "engine/": "claim, run, settle",
    "function": "claim, run, settle",
    "bench/": "the work itself",
}
"""Maps a part of a function's file and name to its step. The first match counts."""

REST = "other"


class StepTimes(NamedTuple):
    """Microseconds per call of one case: in total, and by step."""

    name: str
    total: float
    steps: dict[str, float]


def main(*, quick: bool, as_json: bool) -> int:
    calls = 300 if quick else 6_000
    with tempfile.TemporaryDirectory(prefix="onceward-bench-") as folder:
        found = [measure_steps(name, call, keys) for name, call, keys in cases(Path(folder), calls)]
    if as_json:
        print(json.dumps([one._asdict() for one in found], indent=2))
        return 0
    for one in found:
        print(f"{one.name}: {one.total:.1f} µs per call")
        for step, took in sorted(one.steps.items(), key=lambda item: -item[1]):
            print(f"  {took:6.2f} µs  {took / one.total:4.0%}  {step}")
    return 0


def cases(folder: Path, calls: int) -> Iterator[tuple[str, Call, list[list[str]]]]:
    """Yield the name, the call, and the keys of each round. The last round is for the profiler."""
    fresh = [[f"order:{round_}:{number}" for number in range(calls)] for round_ in range(6)]
    known = [[f"order:{number % 200}" for number in range(calls)]] * 6
    with in_memory() as call:
        yield "memory @once, fresh", call, fresh
        yield "memory @once, replay", call, known
    for durability in ("NORMAL", "FULL"):
        with opened(folder, durability) as call:
            yield f"sqlite {durability}, fresh", call, [one[: len(one) // 4] for one in fresh]
            yield f"sqlite {durability}, replay", call, known


@contextmanager
def opened(folder: Path, durability: str) -> Iterator[Call]:
    with in_sqlite(folder / f"{durability}.db", durability) as call:
        yield call


def measure_steps(name: str, call: Call, rounds: list[list[str]]) -> StepTimes:
    *timed, profiled = rounds
    total = min(microseconds(call, keys) for keys in timed)
    profiler = cProfile.Profile()
    profiler.enable()
    for key in profiled:
        call(key)
    profiler.disable()
    shares = share_by_step(pstats.Stats(profiler))
    return StepTimes(name, total, {step: share * total for step, share in shares.items()})


def microseconds(call: Call, keys: list[str]) -> float:
    """Return the wall-clock time per call."""
    start = time.perf_counter()
    for key in keys:
        call(key)
    return (time.perf_counter() - start) / len(keys) * 1e6


def share_by_step(stats: pstats.Stats) -> dict[str, float]:
    """Return the share of the time of each step."""
    took: Counter[str] = Counter()
    for (file, _, function), (_, _, own, *_) in stats.stats.items():  # type: ignore[attr-defined]  # not in its stub
        took[step_of(f"{file} {function}")] += own
    return {step: own / took.total() for step, own in took.items()}


def step_of(name: str) -> str:
    return next((step for part, step in STEPS.items() if part in name), REST)
