"""A process with all its descendants, which can be killed together."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers.private import _children


class ProcessTree:
    """Workers fork, and their children may lead their own process groups: none may survive the kill."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def members(self) -> list[int]:
        found = [self._process.pid]
        for parent in found:
            found += _children(parent)
        return found

    def kill(self) -> None:
        """Send SIGKILL to all. They are stopped first, so that none reacts to the death of another or forks."""
        if not self.ended:
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for member in self.members():
                    try:
                        os.kill(member, number)
                    except ProcessLookupError:
                        continue
        self._process.wait()

    def terminate(self) -> None:
        """Send SIGTERM to the process that we started, which ends the others."""
        self._process.terminate()
        self._process.wait()
