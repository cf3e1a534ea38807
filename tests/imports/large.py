"""A large file in constant memory, killed on its way: `python -m tests.imports.large ROWS [KILLS]`.

The importer is a separate process. It is killed by SIGKILL after it reports that it passed a row, and restarted. Its
peak memory is what the system reports. Prints one figure per line; the exit code is 1 if any is wrong.
"""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

MOST = 200_000_000
"""Bytes that an importer may need, whatever the size of the file."""

WORKER = """
import sys
from onceward.imports import import_file
done = import_file(sys.argv[1], sys.argv[2], on_progress=lambda progress: print(progress.rows, flush=True))
print("done", done.resumed_at, done.counts.created, done.counts.rejected, flush=True)
"""


class Large(NamedTuple):
    """The figures of a run."""

    rows: int
    kills: int
    created: int
    rejected: int
    in_the_table: int
    resumed_at: int
    peak: int

    @property
    def wrong(self) -> list[str]:
        problems = []
        if (self.created, self.rejected, self.in_the_table) != (self.rows, self.kills + 1, self.rows):
            problems.append(f"created {self.created}, in the table {self.in_the_table}, rejected {self.rejected}")
        if self.peak >= MOST:
            problems.append(f"{self.peak:,} bytes of memory")
        return problems


def large(rows: int, kills: int) -> Large:
    folder = Path(tempfile.mkdtemp(prefix="onceward-large-"))
    try:
        return _large(folder, rows, kills)
    finally:
        shutil.rmtree(folder)


def _large(folder: Path, rows: int, kills: int) -> Large:
    file = folder / "users.csv"
    step = rows // (kills + 1)
    with file.open("w") as out:
        out.write("Email,Team\n")
        for number in range(rows):
            out.write(f"u{number}@example.com,T{number % 100}\n")
            if number % step == step // 2 and number // step <= kills:
                out.write(f"bad {number},T\n")
    url = f"sqlite:///{folder}/people.db?synchronous=NORMAL"
    for kill in range(1, kills + 1):
        _killed(file, url, kill * step)
    resumed_at, created, rejected = _ended(file, url)
    return Large(rows, kills, created, rejected, _count(url), resumed_at, _peak())


def _worker(file: Path, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WORKER, str(file), url], stdout=subprocess.PIPE, text=True)


def _killed(file: Path, url: str, at: int) -> None:
    with _worker(file, url) as worker:
        assert worker.stdout is not None
        for line in worker.stdout:
            if line.startswith("done") or int(line) >= at:
                break
        worker.send_signal(signal.SIGKILL)


def _ended(file: Path, url: str) -> tuple[int, int, int]:
    with _worker(file, url) as worker:
        assert worker.stdout is not None
        *_, last = worker.stdout
    _, resumed_at, created, rejected = last.split()
    return int(resumed_at), int(created), int(rejected)


def _count(url: str) -> int:
    from onceward.people import People

    with People(url) as people:
        return len(people)


def _peak() -> int:
    """Return the peak memory of the largest child process; Linux counts in kilobytes."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    found = large(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3)
    for name, figure in found._asdict().items():
        print(f"{name} {figure:,}")
    print(*found.wrong, sep="\n")
    sys.exit(1 if found.wrong else 0)
