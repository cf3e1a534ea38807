"""Workers on Firestore that are killed with SIGKILL between effect and record, in real time; and forks."""

from __future__ import annotations

import datetime as dt
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onceward import Once
from tests.firestore_backends import documents
from tests.servers.firestore import shared

VICTIM = """
import os, signal, sys
from pathlib import Path
from onceward import Once
from tests.firestore_backends import documents

folder = Path(sys.argv[1])
with Once(documents(folder)) as once, once.claim("charge 7", lease="3s") as claim:
    (folder / "effects").open("a").write(claim.derived_key("charge") + "\\n")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.mission("A7")
@pytest.mark.fault("F30", "F43")
def test_a_killed_owners_lease_expires_by_the_servers_clock_and_its_successor_has_the_same_derived_key(
    tmp_path: Path,
) -> None:
    shared()
    killed = subprocess.run([sys.executable, "-c", VICTIM, str(tmp_path)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    with Once(documents(tmp_path)) as once:
        with once.claim("charge 7", wait="30s") as claim:
            taken_over = claim.attempt, claim.derived_key("charge")
            claim.complete("charged")
        entry = once.read("charge 7")
    assert taken_over == (2, (tmp_path / "effects").read_text().strip())
    assert entry is not None
    assert entry.claimed_at - entry.created_at >= dt.timedelta(seconds=3), "not before the lease had expired"


FORKED = """
import os, signal, sys
from pathlib import Path
from onceward import Once
from tests.firestore_backends import documents

signal.alarm(40)
with Once(documents(Path(sys.argv[1]))) as once:
    once.run("one", lambda: "parent")
    channel = once.store._open.transport.open_channels()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        print(once.run("one", lambda: "child"), once.run("two", lambda: "child"), flush=True)
        os._exit(once.store._open.transport.open_channels() is channel)
    assert os.waitpid(child, 0)[1] == 0
    print(once.run("two", lambda: "parent"))
"""


@pytest.mark.fault("F34")
def test_a_forked_child_opens_its_own_channel(tmp_path: Path) -> None:
    shared()
    printed = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path)], check=True, timeout=60, stdout=subprocess.PIPE, text=True
    )
    assert printed.stdout.split() == ["parent", "child", "child"]
