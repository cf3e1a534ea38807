"""examples/outreach: what the seed document says about it, with real files and several workers."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.outreach.app import HERE, Outreach
from onceward.stores.sqlite import SQLiteStore
from onceward.testing import FakeClock
from tests.docs.pages import ROOT


class World:
    """Mail server, directory and payment provider, and what they saw."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.sent: list[tuple[int, str]] = []
        self.looked_up: list[tuple[int, str]] = []
        self.charges: dict[str, int] = {}
        self.down = False
        self._workers: list[Outreach] = []

    def worker(self) -> Outreach:
        store = SQLiteStore(self.folder / "outreach.db", clock=self.clock)
        made = Outreach(self.folder, send=self._send, look_up=self._look_up, pay=self._pay, store=store)
        self._workers.append(made)
        return made

    def _send(self, prospect_id: int, text: str) -> None:
        self.sent.append((prospect_id, text))

    def _look_up(self, prospect_id: int, kind: str) -> str:
        self.looked_up.append((prospect_id, kind))
        if self.down:
            raise ConnectionError("the directory is down")
        return f"{kind} of {prospect_id}"

    def _pay(self, customer: str, cents: int, key: str) -> str:
        self.charges[key] = cents
        if self.down:
            raise ConnectionError("no reply")
        return "receipt"

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.mark.mission("C1", "C10")
def test_a_prospect_gets_one_mail_a_day_also_after_a_restart(world: World) -> None:
    first = world.worker()
    assert first.send_email(1, "hello") == {"sent": True}
    assert first.send_email(1, "hello again") == {"skipped": True, "reason": "already_emailed_today"}
    first.close()
    again = world.worker()
    assert again.send_email(1, "after a restart") == {"skipped": True, "reason": "already_emailed_today"}
    world.clock.advance("24h")
    assert again.send_email(1, "a day later") == {"sent": True}
    assert world.sent == [(1, "hello"), (1, "a day later")]


@pytest.mark.mission("C1")
def test_of_three_workers_at_once_one_sends_and_there_is_one_row(world: World) -> None:
    workers = [world.worker() for _ in range(3)]
    line, answers = threading.Barrier(3), []

    def send(worker: Outreach) -> None:
        line.wait(20)
        answers.append(worker.send_email(1, "hello"))

    threads = [threading.Thread(target=send, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers.count({"sent": True}) == 1
    assert len(answers) == 3
    assert workers[0]._read("SELECT count(*) FROM emails") == (1,)


@pytest.mark.mission("C6")
def test_an_enrichment_is_tried_once_a_day_unless_the_data_is_there(world: World) -> None:
    outreach = world.worker()
    world.down = True
    assert outreach.enrich(1, "website") == {"skipped": True, "reason": "tried_recently"}
    world.down = False
    assert outreach.enrich(1, "website") == {"skipped": True, "reason": "tried_recently"}
    assert outreach.enrich(1, "email") == {"enriched": True}
    assert outreach.enrich(1, "email") == {"skipped": True, "reason": "already_known"}
    world.clock.advance("24h")
    assert outreach.enrich(1, "website") == {"enriched": True}
    assert world.looked_up == [(1, "website"), (1, "email"), (1, "website")]


@pytest.mark.mission("C4")
def test_a_reply_is_processed_once_and_one_without_a_message_id_every_time(world: World) -> None:
    outreach = world.worker()
    assert outreach.receive("<a@b>", 1, "yes") == {"processed": True}
    world.clock.advance("4000d")
    assert outreach.receive("<a@b>", 1, "yes") == {"duplicate": True}
    for _ in range(2):
        assert outreach.receive(None, 1, "no id") == {"processed": True}
    assert outreach._read("SELECT count(*) FROM emails") == (3,)


@pytest.mark.mission("C8")
def test_a_charge_that_is_tried_again_is_the_same_charge(world: World) -> None:
    outreach = world.worker()
    world.down = True
    with pytest.raises(ConnectionError):
        outreach.charge("acme", 7, 1900)
    world.down = False
    world.clock.advance("2d")  # the provider's webhook is redelivered late: no clock in the key
    assert outreach.charge("acme", 7, 1900) == "receipt"
    assert list(world.charges.values()) == [1900]


@pytest.mark.mission("C2")
def test_with_lock_gives_nothing_when_it_is_taken(world: World) -> None:
    first, second = world.worker(), world.worker()
    answers: list[Any] = []

    def work() -> str:
        answers.append(second.with_lock("sync", lambda: "second"))
        return "first"

    assert first.with_lock("sync", work) == "first"
    assert answers == [None]
    assert second.with_lock("sync", lambda: "later") == "later"


@pytest.mark.mission("C9")
def test_its_windows_are_declared_in_one_table_that_the_command_lists() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "onceward.cli", "operations"], cwd=HERE, capture_output=True, text=True, check=True
    )
    assert {one["name"]: one["window"] for one in json.loads(run.stdout)} == {
        "email": "lasting 1d",
        "enrich": "lasting 1d since the attempt",
        "reply": "forever",
        "charge": "lasting 1w",
    }


def test_it_runs_and_everything_the_second_time_is_skipped() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "examples.outreach"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = run.stdout.splitlines()
    assert lines[0].split(maxsplit=1)[1] == "{'sent': True}"
    assert lines[6].split(maxsplit=1)[1] == "{'skipped': True, 'reason': 'already_emailed_today'}"
    assert lines[-1] == "charges  1"
