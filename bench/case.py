"""Cases: two ways to do the same work, and the effort to compare them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from bench.paired import Block, Pace, Run

KNOWN = 200
"""Number of completed keys in the replay cases."""

Call = Callable[[str], object]
Loop = Callable[[Callable[..., object], Sequence[Any]], Run]
"""Calls a function with each of the keys."""


class Case(NamedTuple):
    """Compares `ours` with `theirs`."""

    name: str
    ours: Block
    theirs: Block
    pace: Pace


class Missing(NamedTuple):
    """A case whose peer is not installed."""

    name: str
    package: str


class Effort(NamedTuple):
    """How long to measure each kind of case."""

    calls: Pace
    """Calls that take microseconds."""

    disk: Pace
    """Calls that write to a file."""

    log: Pace
    """Calls that write to a large file: each block is long enough to include its share of the checkpoints."""

    concurrent: Pace
    """Many concurrent callers."""

    contended: Pace
    """Callers that block each other. In short blocks, most of the time is the wait of the last few callers."""

    stream: Pace
    """Events in batches of a thousand: one million in total."""

    callers: int
    few: int
    many: int


THOROUGH = Effort(
    calls=Pace(40, 0.02),
    disk=Pace(30, 0.1),
    log=Pace(6, 0.1, 4096),
    concurrent=Pace(10, 0.4, 256),
    contended=Pace(4, 0.4, 1024),
    stream=Pace(10, 0.1, 50_000),
    callers=64,
    few=1_000,
    many=1_000_000,
)
QUICK = Effort(
    calls=Pace(5, 0.005),
    disk=Pace(3, 0.01),
    log=Pace(2, 0.01, 256),
    concurrent=Pace(2, 0.02, 64),
    contended=Pace(1, 0.02, 64),
    stream=Pace(1, 0.02, 2_000),
    callers=64,
    few=1_000,
    many=20_000,
)


class Plan(NamedTuple):
    """One run of the benchmark: which cases, with how much effort, and a folder for their files."""

    effort: Effort
    folder: Path
    words: tuple[str, ...] = ()

    def wants(self, *names: str) -> bool:
        """Return whether any of these cases was selected: its name contains all the words."""
        return any(all(word in name for word in self.words) for name in names)


Cases = Iterator[Case | Missing]


def work(key: str) -> str:
    """The work per key: it does nothing, so that only the overhead is measured."""
    return key


def calling(call: Callable[[Any], object], arguments: Sequence[Any]) -> Run:
    def run() -> None:
        for argument in arguments:
            call(argument)

    return run


def fresh(call: Callable[..., object], make: Callable[[str], Any] = str, loop: Loop = calling) -> Block:
    """Return a block of calls with a new key each. `make` prepares the keys outside of the measurement."""
    numbers = count()
    return lambda times: loop(call, [make(f"fresh:{next(numbers)}") for _ in range(times)])


def replay(call: Callable[..., object], make: Callable[[str], Any] = str, loop: Loop = calling) -> Block:
    """Return a block of calls with completed keys."""
    keys = [make(f"known:{number}") for number in range(KNOWN)]
    loop(call, keys)()
    return lambda times: loop(call, [keys[number % KNOWN] for number in range(times)])


KINDS = {"fresh": fresh, "replay": replay}
