"""A message that is sent after a commit is not lost if the process is killed in between.

The pattern is that of docs/howto/send-after-commit.md. The child process is killed with SIGKILL after its commit.
`--unsafe` is the usual `on_commit(task.delay)`: it sends only where the rows were written.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sqlite3, sys
from onceward import Once

unsafe, dies = "--unsafe" in sys.argv, "--dies" in sys.argv
once = Once("sqlite:///shop.db", app="shop")
once.migrate()
shop = sqlite3.connect("shop.db", isolation_level=None)
shop.execute("CREATE TABLE IF NOT EXISTS orders (id)")
shop.execute("CREATE TABLE IF NOT EXISTS sent (id)")

@once(key="{order_id}", name="send receipt")
def send_receipt(order_id):
    shop.execute("INSERT INTO sent VALUES (?)", (order_id,))

inserted = []

def insert(order_id):
    shop.execute("INSERT INTO orders VALUES (?)", (order_id,))
    inserted.append(order_id)

with shop:
    shop.execute("BEGIN IMMEDIATE")
    with once.within(shop) as tx:
        tx.run("order:1", insert, 1)
if dies:
    os.kill(os.getpid(), signal.SIGKILL)
if not unsafe or inserted:
    send_receipt(1)
"""


def deliver(folder: Path, *arguments: str) -> int:
    """Deliver the message to a new process. Return its exit status."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, cwd=folder, timeout=120, check=False).returncode


def count(folder: Path, table: str) -> int:
    shop = sqlite3.connect(folder / "shop.db")
    try:
        found: int = shop.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return found
    finally:
        shop.close()


@pytest.mark.finding("N9")
def test_sending_on_every_delivery_sends_once(tmp_path: Path) -> None:
    assert deliver(tmp_path, "--dies") == -signal.SIGKILL
    assert (count(tmp_path, "orders"), count(tmp_path, "sent")) == (1, 0)
    assert deliver(tmp_path) == 0
    assert deliver(tmp_path) == 0
    assert (count(tmp_path, "orders"), count(tmp_path, "sent")) == (1, 1)


@pytest.mark.finding("N9")
def test_sending_only_where_the_rows_were_written_loses_the_message(tmp_path: Path) -> None:
    """The test above can fail: without the safe pattern, the message is lost."""
    assert deliver(tmp_path, "--unsafe", "--dies") == -signal.SIGKILL
    assert deliver(tmp_path, "--unsafe") == 0
    assert (count(tmp_path, "orders"), count(tmp_path, "sent")) == (1, 0)
