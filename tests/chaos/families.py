"""A process with all its descendants, and an end for all of them at once."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers.private import _children


class Family:
    """Workers fork, and their children may lead groups of their own: none is to outlive the kill."""

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
        """SIGKILL. Stopped first, so that nobody notices how the others die, or forks meanwhile."""
        if not self.ended:
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for member in self.members():
                    try:
                        os.kill(member, number)
                    except ProcessLookupError:
                        continue
        self._process.wait()

    def terminate(self) -> None:
        """SIGTERM, to the one that we started: it tells the others."""
        self._process.terminate()
        self._process.wait()
