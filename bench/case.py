"""What a case is: two ways to do the same work, and how much effort goes into comparing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from bench.paired import Block, Pace, Run

KNOWN = 200
"""Keys that are done already in the replay cases."""

Call = Callable[[str], object]
Loop = Callable[[Callable[..., object], Sequence[Any]], Run]
"""What calls a function with each of the keys."""


class Case(NamedTuple):
    """`ours` is measured, `theirs` is what it is measured against."""

    name: str
    ours: Block
    theirs: Block
    pace: Pace


class Missing(NamedTuple):
    """A case whose peer is not installed."""

    name: str
    package: str


class Effort(NamedTuple):
    """How long to measure each sort of case."""

    calls: Pace
    """Microseconds each."""

    disk: Pace
    """Calls that write to a file."""

    log: Pace
    """The same on a large file: each block is long enough to pay for its share of the checkpoints."""

    crowd: Pace
    """Many callers at once."""

    struggle: Pace
    """Callers that stand in each other's way. In short blocks most of the time is the wait of the last few."""

    stream: Pace
    """Events in batches of a thousand: a million in all."""

    callers: int
    few: int
    many: int


THOROUGH = Effort(
    calls=Pace(40, 0.02),
    disk=Pace(30, 0.1),
    log=Pace(6, 0.1, 4096),
    crowd=Pace(10, 0.4, 256),
    struggle=Pace(4, 0.4, 1024),
    stream=Pace(10, 0.1, 50_000),
    callers=64,
    few=1_000,
    many=1_000_000,
)
QUICK = Effort(
    calls=Pace(5, 0.005),
    disk=Pace(3, 0.01),
    log=Pace(2, 0.01, 256),
    crowd=Pace(2, 0.02, 64),
    struggle=Pace(1, 0.02, 64),
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
        """Whether any of these cases was asked for: its name contains all the words."""
        return any(all(word in name for word in self.words) for name in names)


Cases = Iterator[Case | Missing]


def work(key: str) -> str:
    """What is done once per key: nothing, so that only the doing once is measured."""
    return key


def calling(call: Callable[[Any], object], arguments: Sequence[Any]) -> Run:
    def run() -> None:
        for argument in arguments:
            call(argument)

    return run


def fresh(call: Callable[..., object], make: Callable[[str], Any] = str, loop: Loop = calling) -> Block:
    """Calls with a new key each; `make` makes it beforehand."""
    numbers = count()
    return lambda times: loop(call, [make(f"fresh:{next(numbers)}") for _ in range(times)])


def replay(call: Callable[..., object], make: Callable[[str], Any] = str, loop: Loop = calling) -> Block:
    """Calls with keys that were done before."""
    keys = [make(f"known:{number}") for number in range(KNOWN)]
    loop(call, keys)()
    return lambda times: loop(call, [keys[number % KNOWN] for number in range(times)])


KINDS = {"fresh": fresh, "replay": replay}
