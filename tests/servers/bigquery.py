"""The emulator `bqemulator`, in its own virtual environment: it needs other versions than the tests.

The environment is created once inside of the tests' own environment; later runs reuse it. ONCEWARD_TEST_BQEMULATOR
names another location. `Front` corrects differences between the emulator and BigQuery.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from tests.servers.housed import HousedServer, get
from tests.servers.process import free_port, missing

VERSION = "1.4.0"
WANTED = (
    f"bqemulator=={VERSION}",
    "duckdb==1.5.5",
    "duckdb-extensions==1.5.5",
    "duckdb-extension-spatial==1.5.5",
    "numpy",
)
EXTENSION = "from duckdb_extensions import import_extension; import_extension('spatial')"
HOME = Path(os.environ.get("ONCEWARD_TEST_BQEMULATOR") or Path(sys.prefix) / f"bqemulator-{VERSION}")
INSTALLING = 600  # seconds that it may take


def emulator() -> Path:
    """Return the emulator's program. Install it if necessary."""
    program, done = HOME / "bin" / "bqemulator", HOME / ".installed"
    if done.exists():
        return program
    with HOME.with_name(f"{HOME.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several workers, one installs
        if not done.exists():
            try:
                _install()
            except (OSError, subprocess.SubprocessError) as error:
                output = getattr(error, "stderr", None) or str(error)
                missing(
                    "bqemulator", f"uv pip install {' '.join(WANTED)} in an environment of its own ({output[-500:]})"
                )
            done.touch()
    return program


def _install() -> None:
    uv = str(Path(sys.executable).parent / "uv")
    python = str(HOME / "bin" / "python")
    for command in (
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(HOME)],
        [uv, "pip", "install", "--quiet", "--python", python, *WANTED],
        [python, "-c", EXTENSION],
    ):
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALLING)


class BigQueryServer(HousedServer):
    """One emulator. Its data is in memory."""

    patience = 90.0  # it imports much
    greeting = get("/bigquery/v2/projects")

    def __init__(self) -> None:
        ports = ["--rest-port", "{port}", "--grpc-port", str(free_port())]
        super().__init__("bigquery", [str(emulator()), "start", *ports, "--log-level", "error"])
        self.endpoint = f"http://{self.address}"


_servers: list[BigQueryServer] = []


def shared() -> BigQueryServer:
    """Return the server of this test process: a new one if the last one crashed, which it does on a busy machine."""
    if not _servers or not _servers[-1].is_running():
        _servers.append(BigQueryServer().until_exit())
    return _servers[-1]
