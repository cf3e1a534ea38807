"""The processes of a storm, as the system sees them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

TOO_LONG = 60.0


def await_that(condition: Callable[[], bool], what: str) -> None:
    patience = time.monotonic() + TOO_LONG
    while not condition():
        assert time.monotonic() < patience, what
        time.sleep(0.01)


def storm_processes(of: int) -> list[int]:
    """Return the live fork server and workers of a supervisor, whichever of the two started the workers."""
    parents = dict(map(_stat, Path("/proc").glob("[0-9]*/stat")))
    alive = {pid: parent for pid, (parent, _) in parents.items() if is_alive(pid)}
    fork_servers = [pid for pid, parent in alive.items() if parent == of and _is_ours(pid, "fork_server")]
    fresh = [pid for pid, parent in alive.items() if parent == of and _is_ours(pid, "worker")]
    return fork_servers + fresh + [pid for pid, parent in alive.items() if parent in fork_servers]


def is_alive(pid: int) -> bool:
    return state_of(pid) not in ("", "Z")  # a zombie may have no parent that reaps it


def state_of(pid: int) -> str:
    """Return one letter, T if it is stopped; an empty text if it is gone."""
    return _stat(Path(f"/proc/{pid}/stat"))[1][1]


def _is_ours(pid: int, kind: str) -> bool:
    try:
        return f"onceward.testing.storm.{kind}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _stat(path: Path) -> tuple[int, tuple[int, str]]:
    """Return a process, its parent and its state; an empty state if it is gone."""
    try:
        state, parent = path.read_text(errors="replace").rpartition(")")[2].split()[:2]
    except OSError:
        state, parent = "", "0"
    return int(path.parent.name), (int(parent), state)
