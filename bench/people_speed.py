"""How fast records of people are resolved: `python -m bench --only people-speed [--quick] [-o json]`.

Measures one record at a time among many, and the import of a CSV file by e-mail. Each import runs in a process of its
own, which reports its peak memory. Two sizes of the file show whether the memory depends on the size.
"""

from __future__ import annotations

import csv
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from bench.people_data import Maker
from onceward.imports import import_file
from onceward.people import People

BATCH_SIZE: Final = 1000
RESOLVED: Final = 2_000
"""Records that are resolved one at a time."""

BARS: Final = {"resolution_p95_ms": 2.0, "rows_per_s": 20_000, "memory_ratio": 1.1}
"""The targets. `memory_ratio`: the peak memory of the large import, compared with that of the small one."""

HEADER: Final = ("Email", "Team")


def main(*, quick: bool, as_json: bool) -> int:
    speed = speeds(quick=quick)
    if as_json:
        print(json.dumps({"python": platform.python_version(), **speed, "bars": BARS, "quick": quick}, indent=2))
    else:
        print_speeds(speed)
        if quick:
            print("quick: do not quote these figures")
    return 0


def speeds(*, quick: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="onceward-bench-") as name:
        folder = Path(name)
        found = resolution(folder, 2_000 if quick else 50_000)
        sizes = (2_000, 10_000) if quick else (200_000, 1_000_000)
        return found | {"imports": [imported(folder, rows) for rows in sizes]}


def resolution(folder: Path, size: int) -> dict[str, Any]:
    """Measure one record at a time among this many, without the commit."""
    known = Maker(4).records(size // 2)
    stored, new = known[:size], known[size : size + RESOLVED]
    durations = []
    with People(f"sqlite:///{folder}/similarity.db") as people:
        for start in range(0, len(stored), BATCH_SIZE):
            people.add_many(one.record for one in stored[start : start + BATCH_SIZE])
        with people.transaction(trial=True) as tx:
            for one in new:
                start_time = time.perf_counter()
                tx.add_many([one.record])
                durations.append((time.perf_counter() - start_time) * 1000)
    return {
        "resolution_among": len(stored),
        "resolution_median_ms": median(durations),
        "resolution_p95_ms": quantiles(durations, n=100)[94],
    }


def imported(folder: Path, rows: int) -> dict[str, Any]:
    """Import a CSV file of this many rows in another process, then its next edition with one more row."""
    file, url = folder / f"users-{rows}.csv", f"sqlite:///{folder}/people-{rows}.db?synchronous=NORMAL"
    found = []
    for edition in (0, 1):
        with file.open("w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(HEADER)
            writer.writerows((f"user{number}@example.com", f"T{number % 50}") for number in range(rows + edition))
        command = [sys.executable, "-m", "bench.people_speed", str(file), url]
        found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    first, next_edition = found
    return {
        "rows": rows,
        "rows_per_s": rows / first["seconds"],
        "unchanged_rows_per_s": rows / next_edition["seconds"],
        "peak_bytes": first["peak_bytes"],
        "unchanged_peak_bytes": next_edition["peak_bytes"],
    }


def print_speeds(speed: dict[str, Any]) -> None:
    print(f"one record among {speed['resolution_among']:,}: median {speed['resolution_median_ms']:.2f} ms,"
          f" p95 {speed['resolution_p95_ms']:.2f} ms (target {BARS['resolution_p95_ms']:g} ms)")  # fmt: skip
    for one in speed["imports"]:
        print(f"{one['rows']:,} rows by e-mail: {one['rows_per_s']:,.0f} rows/s (target {BARS['rows_per_s']:,}),"
              f" peak memory {one['peak_bytes'] / 1e6:.1f} MB; next edition: {one['unchanged_rows_per_s']:,.0f} rows/s,"
              f" {one['unchanged_peak_bytes'] / 1e6:.1f} MB")  # fmt: skip
    small, large = speed["imports"][0], speed["imports"][-1]
    print(f"{large['rows'] / small['rows']:g} times the rows need {large['peak_bytes'] / small['peak_bytes']:.2f} times"
          f" the memory (target: at most {BARS['memory_ratio']:g})")  # fmt: skip


# ── in the other process ────────────────────────────────────────────────────────────────────────────────────────────


def import_once(file: str, url: str) -> dict[str, float]:
    start_time = time.perf_counter()
    import_file(file, url, name="users.csv")
    return {"seconds": time.perf_counter() - start_time, "peak_bytes": peak_memory()}


def peak_memory() -> int:
    """Return the peak memory of this process in bytes.

    On Linux, `ru_maxrss` also counts the process that started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if "VmHWM" in line)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    print(json.dumps(import_once(*sys.argv[1:])))
