"""Servers with many processes that refuse to run as root: with their own folder and user, and killed together."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PATIENCE = 120.0  # seconds for a server to start or to end
BETWEEN_LOOKS = 0.02

SERVANTS = ("postgres", "nobody")  # plain: ok
"""Servers that refuse root run as the first of these that exists."""


class Folder:
    """A temporary folder that the server's user may access. Pytest's own folder is closed to other users."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="onceward-"))
        self.servant = _servant() if os.geteuid() == 0 else None
        if self.servant is not None:
            os.chown(self.path, self.servant.pw_uid, self.servant.pw_gid)

    def give(self, path: Path) -> None:
        """Give a file that we have written to the server's user."""
        if self.servant is not None:
            os.chown(path, self.servant.pw_uid, self.servant.pw_gid)

    def as_servant(self, *command: str) -> list[str]:
        """Return the command to run as the server's user. The kernel ends it together with this process."""
        prefix = ["setpriv", "--pdeathsig", "QUIT"]
        if self.servant is not None:
            prefix += [f"--reuid={self.servant.pw_uid}", f"--regid={self.servant.pw_gid}", "--clear-groups"]
        return [*prefix, *command]

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _servant() -> pwd.struct_passwd:
    for name in SERVANTS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise LookupError(f"none of the users {SERVANTS} exists")


class Process:
    """One run of a server, and its children."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/", start_new_session=True
            )
        self._log = log

    def await_up(self, is_up: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_up():
            output = self._log.read_text(errors="replace")[-2000:]
            assert self._popen.poll() is None, f"the server ended while it started:\n{output}"
            assert time.monotonic() < deadline, f"the server did not start in {PATIENCE:g} s:\n{output}"
            time.sleep(BETWEEN_LOOKS)

    def pids(self) -> list[int]:
        """Return the server and its children, the server first."""
        return [self._popen.pid, *_children(self._popen.pid)]

    def signal_all(self, number: int) -> None:
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def kill(self) -> None:
        """Kill all processes together, like a power cut, and wait until none is left."""
        pids = self.pids()
        self.signal_all(signal.SIGSTOP)  # else the others would react to the first that dies
        self.signal_all(signal.SIGKILL)
        self._popen.wait(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while any(_is_alive(pid) for pid in pids):
            assert time.monotonic() < deadline, "a child of the server survives SIGKILL"
            time.sleep(BETWEEN_LOOKS)


def _children(parent: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(status.parent.name))
    return found


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # a zombie only waits to be reaped, and has no resources
