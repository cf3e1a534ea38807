"""What the tests of examples/outreach share: their own environment, mails, and concurrent workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.outreach_environment import ANNA, Environment, opened

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "examples" / "outreach"
TODAY = {"skipped": True, "reason": "already_emailed_today"}


@pytest.fixture
def env(tmp_path: Path) -> Iterator[Environment]:
    with opened(tmp_path) as env:
        yield env


def together(work: list[Callable[[], Any]]) -> list[Any]:
    barrier, answers = threading.Barrier(len(work)), []

    def run(one: Callable[[], Any]) -> None:
        barrier.wait(60)
        answers.append(one())

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return answers


def mail(message_id: str | None = "<a@b.example>", sender: str = ANNA["email"]) -> bytes:
    named = f"Message-ID: {message_id}\r\n" if message_id else ""
    return f"{named}From: {sender}\r\nSubject: yes\r\n\r\nPlease do.\r\n".encode()
