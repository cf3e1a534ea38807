"""A process that is killed inside `once.map`: items whose work was not begun do not count as attempted."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onceward import Once, RecordState

KILLED_IN_THE_SECOND_ITEM = """
import os, signal, sys
from onceward import Once

def work(item):
    if item == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return item

settings = {"park": {"after_crash": "park"}, "max_attempts": {"max_attempts": 2}}[sys.argv[2]]
Once(sys.argv[1]).map(work, range(20), key="item:{item}", name="work", lease="1h", **settings)
"""


@pytest.mark.finding("N70")
@pytest.mark.parametrize("setting", ["park", "max_attempts"])
def test_items_that_were_not_begun_are_not_claimed(tmp_path: Path, setting: str) -> None:
    url = f"sqlite:///{tmp_path}/once.db"
    killed = subprocess.run([sys.executable, "-c", KILLED_IN_THE_SECOND_ITEM, url, setting], check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    with Once(url) as once:
        entries = [once.read(f"item:{item}", name="work") for item in range(20)]
    assert [entry.state if entry else None for entry in entries[:2]] == [RecordState.COMPLETED, RecordState.PENDING]
    assert entries[2:] == [None] * 18
