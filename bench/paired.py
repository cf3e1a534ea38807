"""The method of measurement: on a noisy machine, only paired figures are reliable.

Small blocks run in the order A B B A, again and again. Each is compared with its neighbour, so that a temporary
slowdown affects both. The results are the median of the ratios and a bootstrap interval around it. Pairs of the same
work, B against itself, show how far from 1 a ratio can be by chance.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from statistics import median
from typing import NamedTuple

Run = Callable[[], object]
"""Does the work. This is timed."""

Block = Callable[[int], Run]
"""Prepares this many operations and returns a function that runs them. The preparation is not timed."""

RESAMPLES = 2_000
CONFIDENCE = 0.95
LARGEST_BLOCK = 1 << 20

ORDER_OF_A = (0, 1, 1, 0)
ORDER_OF_B = (0, 1)
"""The order of two files per side. In two rounds of A B B A, each file of A is compared with each file of B once."""


class Pace(NamedTuple):
    """The number of A B B A rounds, and the approximate seconds and minimum operations of a block."""

    rounds: int
    seconds: float
    smallest: int = 1


class Reading(NamedTuple):
    """Seconds per operation: wall-clock time, and CPU time of this process."""

    wall: float
    cpu: float


class Ratio(NamedTuple):
    """How many times as long A takes as B: the median and its 95 % confidence interval."""

    median: float
    low: float
    high: float

    def inverse(self) -> Ratio:
        return Ratio(1 / self.median, 1 / self.high, 1 / self.low)


class Comparison(NamedTuple):
    """`blocks`: operations per block of A and B.

    `noise` compares B with B: a ratio inside its interval means nothing.
    """

    blocks: tuple[int, int]
    pairs: int
    a: Reading
    b: Reading
    wall: Ratio
    cpu: Ratio
    noise: Ratio


def measure(block: Block, times: int) -> Reading:
    run = block(times)
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return Reading((time.perf_counter() - wall) / times, (time.process_time() - cpu) / times)


def block_size(block: Block, seconds: float, smallest: int = 1) -> int:
    """Return the number of operations in a block of about that length: `smallest` times a power of two."""
    times = smallest
    while times < LARGEST_BLOCK and measure(block, times).wall * times < seconds:
        times *= 2
    return times


def alternate(order: Sequence[int], *blocks: Block) -> Block:
    """Alternate between blocks in this order. Two files on one disk differ, so each side has two."""
    indexes = cycle(order)

    def block(times: int) -> Run:
        return blocks[next(indexes)](times)

    return block


def compare(a: Block, b: Block, pace: Pace, *, seed: int = 1) -> Comparison:
    size_a = block_size(a, pace.seconds, pace.smallest)
    size_b = block_size(b, pace.seconds, pace.smallest)
    pairs = _pairs((a, size_a), (b, size_b), pace.rounds)
    noise = _pairs((b, size_b), (b, size_b), pace.rounds)
    return Comparison(
        (size_a, size_b),
        len(pairs),
        _typical([left for left, _ in pairs]),
        _typical([right for _, right in pairs]),
        ratio([left.wall / right.wall for left, right in pairs], seed),
        ratio([left.cpu / max(right.cpu, 1e-9) for left, right in pairs], seed),
        ratio([left.wall / right.wall for left, right in noise], seed),
    )


def _pairs(a: tuple[Block, int], b: tuple[Block, int], rounds: int) -> list[tuple[Reading, Reading]]:
    """Run A B B A. Each round gives two pairs of neighbours, one in each order."""
    pairs = []
    for _ in range(rounds):
        gc.collect()
        first, second, third, fourth = (measure(*one) for one in (a, b, b, a))
        pairs += [(first, second), (fourth, third)]
    return pairs


def _typical(readings: list[Reading]) -> Reading:
    return Reading(median(one.wall for one in readings), median(one.cpu for one in readings))


def ratio(values: list[float], seed: int) -> Ratio:
    rng = random.Random(seed)
    medians = sorted(median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Ratio(median(values), medians[tail], medians[-tail - 1])
