"""A full store: one clear line, its exit code, nothing changed. Once there is room, everything works again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onceward.cli.exit_codes import Exit
from onceward.cli.settings import VARIABLES
from onceward.errors import StoreFull
from onceward.protocol.audit import signature
from onceward.protocol.requests import ClaimRequest
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite import connection as link
from tests.cli.calls import as_json, call, environment, line

pytestmark = pytest.mark.fault("F60")

SCENARIO = """
import json, os, subprocess, sys
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", "."], check=True)
os.chdir(os.getcwd())  # into what was mounted

def onceward(*words):
    done = subprocess.run([sys.executable, "-m", "onceward.cli", *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr

def fill():
    with open("ballast", "wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(1024))
        except OSError:
            pass

results = {"first": onceward("run", "--key", "first", "--", "echo", "hi")}
fill()
for words in json.loads(sys.argv[1]):
    results[" ".join(words)] = onceward(*words)
os.remove("ballast")
filling = "dd if=/dev/zero of=ballast bs=1k 2>/dev/null; yes | head -c 100000"
times = ("--lease", "500ms", "--settle-timeout", "500ms")
results["full meanwhile"] = onceward("run", "--key", "meanwhile", *times, "--", "sh", "-c", filling)
os.remove("ballast")
results["ran"] = os.path.exists("ran")
results["replay"] = onceward("run", "--key", "first", "--", "echo", "hi")
results["again"] = onceward("run", "--key", "second", "--", "touch", "ran")
results["states"] = {one["key"]: one["standing"] for one in json.loads(onceward("ls")[1])}
results["trail"] = json.loads(onceward("audit")[1])
print(json.dumps(results))
"""
REASON = "x" * 1000
WORDS = (
    ("run", "--key", "second", "--", "touch", "ran"),
    ("forget", "first", "--yes"),
    ("purge", "--yes"),
    ("ls",),
    ("explain", "first"),
    ("audit",),
    ("doctor",),
    ("migrate", "--dry-run"),
)


@pytest.fixture
def own_mounts() -> list[str]:
    """Return how to start a process with its own mounts, which disappear with it."""
    ways = (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"])
    for way in ways if shutil.which("unshare") and shutil.which("mount") else ():
        probe = [*way, "sh", "-c", "mount -t tmpfs -o size=16k tmpfs /mnt"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return way
    pytest.skip("needs a small disk: this user may not mount a tmpfs, not even in its own namespace")


def test_a_full_disk_is_one_line_for_every_command_and_nothing_is_run(own_mounts: list[str], tmp_path: Path) -> None:
    command = [*own_mounts, sys.executable, "-c", SCENARIO, json.dumps(WORDS)]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert results["first"] == [0, "hi\n", ""]
    for words in WORDS:
        code, out, err = results[" ".join(words)]
        assert (code, out) == (Exit.FULL, ""), (words, err)
        assert (err.startswith("onceward: sqlite:"), err.count("\n")) == (True, 1), err
        assert "the disk is full; nothing was written" in err
    code, _, err = results["full meanwhile"]
    assert (code, err.count("\n")) == (Exit.UNKNOWN, 1), err
    assert "did not confirm the result" in err
    assert results["ran"] is False
    assert results["replay"] == [0, "hi\n", ""], "what was acknowledged is there"
    assert results["again"][0] == 0, "and it works once there is room"
    assert results["states"] == {"first": "COMPLETED", "meanwhile": "PENDING lapsed", "second": "COMPLETED"}
    assert results["trail"] == []


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose size SQLite itself limits: the same error, where no tmpfs can be mounted."""
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(link, "SETTINGS", (*link.SETTINGS, "PRAGMA max_page_count = 40"))
    store = SQLiteStore("onceward.db", synchronous="NORMAL")
    run(store.open(ThreadRuntime()))
    claimed = []
    with pytest.raises(StoreFull):
        for number in range(1000):
            request = ClaimRequest(b"%32d" % number, "s", f"key {number}", b"n", 600_000_000)
            claimed.append(run(store.claim([request], timeout=5))[0])
    signed = signature("forget", "me", REASON)
    with pytest.raises(StoreFull):
        for answer in claimed:
            assert answer.record is not None
            run(store.forget([answer.record.id], force=True, timeout=5, signed=signed))
    run(store.close())
    return tmp_path


def test_a_full_file_is_one_line_and_can_still_be_read(full: Path) -> None:
    result = call("run", "--key", "k" * 400, "--", "touch", "ran")
    assert result.exit_code == Exit.FULL
    assert "the disk is full; nothing was written" in line(result)
    assert not (full / "ran").exists()
    assert len(as_json("ls", "--limit", 3)) == 3


def test_where_there_is_no_room_for_the_entry_there_is_no_change(full: Path) -> None:
    [before] = as_json("ls", "--limit", 1)
    entries = as_json("audit", "--limit", 1000)
    result = call("forget", before["key"], "--force", "--yes", "--why", REASON)
    assert result.exit_code == Exit.FULL
    assert "the disk is full; nothing was written" in result.stderr.splitlines()[-1]
    assert as_json("ls", "--limit", 1) == [before]
    assert as_json("audit", "--limit", 1000) == entries
