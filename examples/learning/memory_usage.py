"""Samples this process's current and peak memory, and reports them by quarters of the run."""

from __future__ import annotations

import os
import resource
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path

QUARTERS = 4
MIB = 1024 * 1024
RESIDENT = Path("/proc/self/statm")


class MemoryUsage:
    """Memory samples by quarter of the run."""

    def __init__(self) -> None:
        self._peaks: dict[int, int] = {}
        self._resident: dict[int, list[int]] = {}

    def sample(self, quarter: int) -> None:
        self._peaks[quarter] = peak()
        self._resident.setdefault(quarter, []).append(resident())

    def peaks(self) -> list[int]:
        """Return the peak in MiB at the end of each quarter."""
        return _by_quarters(self._peaks)

    def medians(self) -> list[int]:
        """Return the median in MiB of each quarter."""
        return _by_quarters({quarter: statistics.median(samples) for quarter, samples in self._resident.items()})


def _by_quarters(found: Mapping[int, float]) -> list[int]:
    """Return a value per quarter. A quarter without samples repeats the previous value."""
    result: list[int] = []
    for quarter in range(min(found), QUARTERS):
        result.append(round(found[quarter] / MIB) if quarter in found else result[-1])
    return result


def peak() -> int:
    """Return the peak memory in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident() -> int:
    """Return the current memory in bytes, or the peak if the system does not report it."""
    try:
        return int(RESIDENT.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        return peak()
