"""`onceward consume module:app`: a process that works until it gets a signal."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onceward import ConfigurationError, Once
from onceward.cli.consume import load_consumer
from onceward.cli.program import CommandError
from tests.queues.brokers import OnRedisStreams
from tests.servers.redis import shared

APP = """
import sqlite3, time
from onceward import Once, current_claim
from onceward.queues import Consumer
from onceward.queues.redis_streams import RedisStreamQueue

once = Once("sqlite:///shop.db")

@once(key="{{event[id]}}", name="book")
def book(event: dict) -> None:
    connection = sqlite3.connect("shop.db")
    connection.execute("CREATE TABLE IF NOT EXISTS begun (id)")
    connection.execute("INSERT INTO begun VALUES (?)", (event["id"],))
    connection.commit()
    while event["id"] == "slow" and not connection.execute("SELECT 1 FROM go_on").fetchone():
        time.sleep(0.01)
    with connection:
        connection.execute("CREATE TABLE IF NOT EXISTS effects (id)")
        connection.execute("INSERT INTO effects VALUES (?)", (event["id"],))
        current_claim().complete_in(connection)
    connection.close()

app = Consumer(book, RedisStreamQueue({url!r}, stream={name!r}, group="shop"), concurrency=1)
other = "no consumer"
"""


@pytest.fixture
def broker(tmp_path: Path) -> OnRedisStreams:
    broker = OnRedisStreams(shared("valkey"))
    (tmp_path / "orders.py").write_text(APP.format(url=broker.url, name=broker.name))
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE go_on (yes)")
    connection.close()
    return broker


def started(place: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "onceward.cli", "consume", *arguments]
    return subprocess.Popen(command, cwd=place, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def rows(place: Path, table: str) -> list[str]:
    connection = sqlite3.connect(place / "shop.db", timeout=30)
    try:
        return [id for (id,) in connection.execute(f"SELECT id FROM {table} ORDER BY rowid")]
    except sqlite3.OperationalError:  # the table does not exist yet
        return []
    finally:
        connection.close()


def until_there_is(place: Path, table: str, id: str) -> None:
    deadline = time.monotonic() + 60
    while id not in rows(place, table):
        assert time.monotonic() < deadline, f"no {id} in {table}"
        time.sleep(0.02)


def test_sigterm_lets_it_finish_what_it_has_begun_and_begin_nothing_more(
    broker: OnRedisStreams, tmp_path: Path
) -> None:
    asyncio.run(broker.send([(json.dumps({"id": id}).encode(), id) for id in ("slow", "next")]))
    process = started(tmp_path, "orders:app")
    until_there_is(tmp_path, "begun", "slow")
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    while "finishing those in flight" not in (line := process.stdout.readline()):
        assert line, "it ended"
    with sqlite3.connect(tmp_path / "shop.db", timeout=30) as connection:
        connection.execute("INSERT INTO go_on VALUES (1)")
    connection.close()
    said, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (0, "")
    assert "stopped" in said
    assert rows(tmp_path, "effects") == ["slow"]
    assert asyncio.run(broker.remaining()) == 1
    with Once(f"sqlite:///{tmp_path}/shop.db") as once:
        assert once.stats().total("executed", "default/book") == 1, "it counts by default"


def test_a_second_signal_exits_immediately_and_the_work_is_not_acknowledged(
    broker: OnRedisStreams, tmp_path: Path
) -> None:
    asyncio.run(broker.send([(b'{"id": "slow"}', "slow")]))
    process = started(tmp_path, "orders:app")
    until_there_is(tmp_path, "begun", "slow")
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    while "finishing those in flight" not in (line := process.stdout.readline()):
        assert line, "it ended"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert rows(tmp_path, "effects") == []
    assert asyncio.run(broker.remaining()) == 1


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("orders:other", "orders:other is not a Consumer, but str"),
        ("orders:nothing", "orders has no 'nothing'"),
        ("nowhere:app", "nowhere cannot be imported"),
        ("orders", "is not the path of an object"),
    ],
)
def test_an_invalid_consumer_is_refused_with_one_line(
    broker: OnRedisStreams, tmp_path: Path, target: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "orders", raising=False)
    with pytest.raises((ConfigurationError, CommandError), match=re.escape(said)):
        load_consumer(target)
    sys.modules.pop("orders", None)


def test_an_application_that_cannot_be_imported_ends_with_one_line_below_its_own_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "breaks_at_once.py").write_text("raise RuntimeError('no settings')")
    with pytest.raises(ConfigurationError, match=r"breaks_at_once cannot be imported: RuntimeError\('no settings'\)"):
        load_consumer("breaks_at_once:app")
    assert "breaks_at_once.py" in capsys.readouterr().err


def test_a_broker_that_is_not_there_at_the_start_is_an_error(tmp_path: Path) -> None:
    from tests.servers.process import free_port

    (tmp_path / "orders.py").write_text(APP.format(url=f"redis://127.0.0.1:{free_port()}/0", name="orders"))
    _, complaints = (process := started(tmp_path, "orders:app")).communicate(timeout=60)
    assert process.returncode == 1
    assert "ConnectionError" in complaints


FAILING = """
from onceward import Once
from onceward.queues import Consumer
from onceward.queues.redis_streams import RedisStreamQueue
{logging}
once = Once("sqlite:///shop.db", max_attempts=1)

@once(key="{{event[id]}}", name="book")
def book(event: dict) -> None:
    raise ValueError("no such card")

app = Consumer(book, RedisStreamQueue({url!r}, stream={name!r}, group="shop"), concurrency=1)
"""


@pytest.mark.finding("N25")
@pytest.mark.parametrize("configured", ["", "import logging; logging.basicConfig(level=logging.WARNING)"])
def test_a_failure_is_shown_once_with_its_message_and_place(
    tmp_path: Path, broker: OnRedisStreams, configured: str
) -> None:
    text = FAILING.format(url=broker.url, name=broker.name, logging=configured)
    (tmp_path / "orders.py").write_text(text)
    asyncio.run(broker.send([(b'{"id": "o-1"}', "m-1")]))
    process = started(tmp_path, "orders:app")
    said = ""
    assert process.stderr is not None
    while "parked" not in said:  # the last event about the message
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGTERM)
    said += process.communicate(timeout=60)[1]
    assert said.count("ValueError: no such card") == 1
    assert 'orders.py", line' in said
    assert len(re.findall(r"failed o-1 \[default/book\]", said)) == 1
