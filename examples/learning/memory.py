"""How much memory this process has, and had at the most: looked at now and then, told by quarters of the way."""

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


class Memory:
    """Looks, each in the quarter of the way in which it was taken."""

    def __init__(self) -> None:
        self._peaks: dict[int, int] = {}
        self._resident: dict[int, list[int]] = {}

    def look(self, quarter: int) -> None:
        self._peaks[quarter] = peak()
        self._resident.setdefault(quarter, []).append(resident())

    def peaks(self) -> list[int]:
        """MiB, the most so far at the end of each quarter."""
        return _by_quarters(self._peaks)

    def middles(self) -> list[int]:
        """MiB, in the middle one of each quarter's looks."""
        return _by_quarters({quarter: statistics.median(looks) for quarter, looks in self._resident.items()})


def _by_quarters(found: Mapping[int, float]) -> list[int]:
    """A quarter that went by without a look has what was seen before it."""
    told: list[int] = []
    for quarter in range(min(found), QUARTERS):
        told.append(round(found[quarter] / MIB) if quarter in found else told[-1])
    return told


def peak() -> int:
    """Bytes, the most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident() -> int:
    """Bytes, now. Where the system does not tell: the most so far."""
    try:
        return int(RESIDENT.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        return peak()
