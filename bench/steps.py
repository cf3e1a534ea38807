"""Where the time of a call goes: `python -m bench --only steps`.

Each way is first timed as it is. Then it is run under the profiler of the standard library, and what that found is
scaled to the first figure and added up by step. A profiler makes small functions look dearer than they are; which step
takes how large a share is told well enough.
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
    "_contextvars": "which claim is the current one",
    "model/key": "the key and its hash",
    "model/canonical": "the key and its hash",
    "_hashlib": "the key and its hash",
    "ormsgpack": "the key and its hash",
    "operation": "from the arguments to a job",
    "binding": "from the arguments to a job",
    "model/results": "the result as bytes",
    "model/codec": "the result as bytes",
    "model/weight": "the result as bytes",
    "zlib": "the result as bytes",
    "model/cells": "records",
    "model/transitions": "records",
    "stores/": "the store",
    "_thread": "locks",
    "worlds/keeper": "the lease's keeper",
    "worlds/nonce": "the nonce",
    "observe/": "events, counted and offered",
    "logging": "events, counted and offered",
    "core/": "claim, run, record",
    "function": "claim, run, record",
    "bench/": "the work itself",
}
"""What stands in the name of a function, and the step that it belongs to: the first that fits."""

REST = "else"


class Way(NamedTuple):
    """One way to call, and what it takes: microseconds a call in all, and by step."""

    name: str
    total: float
    steps: dict[str, float]


def main(*, quick: bool, as_json: bool) -> int:
    calls = 300 if quick else 6_000
    with tempfile.TemporaryDirectory(prefix="onceward-bench-") as folder:
        found = [examined(name, call, keys) for name, call, keys in ways(Path(folder), calls)]
    if as_json:
        print(json.dumps([one._asdict() for one in found], indent=2))
        return 0
    for one in found:
        print(f"{one.name}: {one.total:.1f} µs a call")
        for step, took in sorted(one.steps.items(), key=lambda item: -item[1]):
            print(f"  {took:6.2f} µs  {took / one.total:4.0%}  {step}")
    return 0


def ways(folder: Path, calls: int) -> Iterator[tuple[str, Call, list[list[str]]]]:
    """Their names, the call, and the keys of each round: the last is for the profiler."""
    fresh = [[f"order:{turn}:{number}" for number in range(calls)] for turn in range(6)]
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


def examined(name: str, call: Call, rounds: list[list[str]]) -> Way:
    *timed, profiled = rounds
    total = min(microseconds(call, keys) for keys in timed)
    profiler = cProfile.Profile()
    profiler.enable()
    for key in profiled:
        call(key)
    profiler.disable()
    shares = shared_out(pstats.Stats(profiler))
    return Way(name, total, {step: share * total for step, share in shares.items()})


def microseconds(call: Call, keys: list[str]) -> float:
    """A call, on the wall."""
    began = time.perf_counter()
    for key in keys:
        call(key)
    return (time.perf_counter() - began) / len(keys) * 1e6


def shared_out(stats: pstats.Stats) -> dict[str, float]:
    """Which step takes which share of the time."""
    took: Counter[str] = Counter()
    for (file, _, function), (_, _, own, *_) in stats.stats.items():  # type: ignore[attr-defined]  # not in its stub
        took[step_of(f"{file} {function}")] += own
    return {step: own / took.total() for step, own in took.items()}


def step_of(name: str) -> str:
    return next((step for part, step in STEPS.items() if part in name), REST)
