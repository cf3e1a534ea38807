"""How much memory this process has, and had at the most: looked at now and then, told by quarters of the way."""

from __future__ import annotations

import os
import resource
import statistics
import sys
from pathlib import Path

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
        return [self._peaks[quarter] // MIB for quarter in sorted(self._peaks)]

    def middles(self) -> list[int]:
        """MiB, in the middle one of each quarter's looks."""
        return [round(statistics.median(self._resident[quarter]) / MIB) for quarter in sorted(self._resident)]


def peak() -> int:
    """Bytes, the most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident() -> int:
    """Bytes, now. Where the system does not tell: the most so far."""
    try:
        return int(RESIDENT.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        return peak()
