"""Start a service of the examples as its own process, as a platform would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.cli.calls import until
from tests.clients import TOO_LONG

ROOT = Path(__file__).resolve().parents[2]


class Service(NamedTuple):
    """A running service."""

    process: subprocess.Popen[str]
    url: str
    log: Path

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(2 * TOO_LONG)


@contextmanager
def started(folder: Path, *command: str, **variables: str) -> Iterator[Service]:
    """Run `python -m examples.…`. The service prints its address when it accepts requests."""
    log = folder / "service.log"
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **variables}
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
        try:
            yield Service(process, _address(process, log), log)
        finally:
            process.kill()
            process.wait(TOO_LONG)
            assert process.stdout is not None
            process.stdout.close()


def _address(process: subprocess.Popen[str], log: Path) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("http://"):
            return line.strip().rstrip("/")
    raise AssertionError(f"the service did not start: {log.read_text()}")


def wait_until_ready(service: Service) -> None:
    until(lambda: httpx.get(f"{service.url}/readyz").status_code == httpx.codes.OK)
