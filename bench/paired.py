"""The method: only paired figures hold on a noisy machine.

Small blocks run in the order A B B A, again and again; each is compared with its neighbour, so that whatever slows the
machine for a while slows both. Told are the median of the ratios and a bootstrap interval around it. An A/A pair, the
same work twice, shows how far from 1 a ratio can get by chance alone.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

Block = Callable[[int], None]
"""Does the work so many times."""

RESAMPLES = 2_000
CONFIDENCE = 0.95
LARGEST_BLOCK = 1 << 20


class Reading(NamedTuple):
    """Seconds an operation: on the wall, and of this process's CPU."""

    wall: float
    cpu: float


class Ratio(NamedTuple):
    """How many times as long A takes as B: the median, and where it lies with 95 % confidence."""

    median: float
    low: float
    high: float


class Comparison(NamedTuple):
    """`blocks`: operations in a block of A, of B. `noise` is the A/A pair: a ratio inside its interval says nothing."""

    blocks: tuple[int, int]
    pairs: int
    a: Reading
    b: Reading
    wall: Ratio
    cpu: Ratio
    noise: Ratio


def measure(work: Block, times: int) -> Reading:
    wall, cpu = time.perf_counter(), time.process_time()
    work(times)
    return Reading((time.perf_counter() - wall) / times, (time.process_time() - cpu) / times)


def block_size(work: Block, seconds: float) -> int:
    """How often it takes place in a block of about that length; a power of two."""
    times = 1
    while times < LARGEST_BLOCK and measure(work, times).wall * times < seconds:
        times *= 2
    return times


def compare(a: Block, b: Block, *, rounds: int, seconds: float, seed: int = 1) -> Comparison:
    size_a, size_b = block_size(a, seconds), block_size(b, seconds)
    pairs = _pairs((a, size_a), (b, size_b), rounds)
    noise = _pairs((b, size_b), (b, size_b), rounds)
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
    """A B B A: each round gives two pairs of neighbours, one in either order."""
    pairs = []
    for _ in range(rounds):
        gc.collect()
        first, second, third, fourth = (measure(*one) for one in (a, b, b, a))
        pairs += [(first, second), (fourth, third)]
    return pairs


def _typical(readings: list[Reading]) -> Reading:
    return Reading(median(one.wall for one in readings), median(one.cpu for one in readings))


def ratio(values: list[float], seed: int) -> Ratio:
    dice = random.Random(seed)
    medians = sorted(median(dice.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Ratio(median(values), medians[tail], medians[-tail - 1])
