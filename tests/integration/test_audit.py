"""Who changed a record by hand, when and why: from Python, in both colours, on both stores."""

from __future__ import annotations

import os
import socket

import pytest

from onceward import NotAcquired, abandon, applied
from onceward.client.audit_identity import who
from onceward.testing import FakeClock
from tests.clients import SyncClient


def park(client: SyncClient, key: str) -> None:
    with pytest.raises(TimeoutError), client.claim(key, after_crash="park"):
        raise TimeoutError("no answer")


def test_a_reason_makes_a_change_by_hand_that_can_be_looked_up(client: SyncClient, clock: FakeClock) -> None:
    park(client, "wire:1")
    client.resolve("wire:1", applied("sent"), why="the bank says so")
    clock.advance("1h")
    client.forget("wire:1", why="a test transfer")
    entries = client.audit("wire:1")
    assert [(one.verb, one.why, one.detail) for one in entries] == [
        ("forget", "a test transfer", ""),
        ("resolve", "the bank says so", "applied"),
    ]
    assert [(one.state_before, one.state_after) for one in entries] == [("COMPLETED", "FREE"), ("PARKED", "COMPLETED")]
    assert {one.who for one in entries} == {who()}
    assert (entries[0].when - entries[1].when).total_seconds() == 3600
    assert "sent" not in repr(entries), "a result is nobody's business"
    assert client.audit("wire:1", within="30m") == entries[:1]
    assert client.audit(limit=1) == entries[:1]
    assert client.audit("wire:2") == []


def test_a_program_that_gives_no_reason_is_no_person(client: SyncClient) -> None:
    park(client, "wire:1")
    client.resolve("wire:1", abandon)
    client.forget("wire:1")
    assert client.audit() == []


def test_a_purge_with_a_reason_is_counted(client: SyncClient, clock: FakeClock) -> None:
    for number in range(3):
        client.run(number, str)
    clock.advance("2d")
    assert client.purge(2, why="the disk is full") == 2
    assert [(one.verb, one.why, one.count) for one in client.audit()] == [("purge", "the disk is full", 2)]


def test_what_was_read_is_forgotten_and_nothing_else(client: SyncClient) -> None:
    client.run("k", str)
    seen = client.read("k")
    client.forget("k")
    client.run("k", str)
    with pytest.raises(NotAcquired, match="changed since it was seen"):
        client.forget("k", seen=seen, why="looked at it")
    assert client.audit() == []
    assert client.forget("k", seen=client.read("k"))
    assert not client.forget("k", seen=seen), "free already, which is what was wanted"


@pytest.mark.skipif(os.name != "posix", reason="a variable decides there")
def test_who_is_the_user_of_the_process_and_not_of_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    monkeypatch.setenv("LOGNAME", "somebody-else")
    monkeypatch.setenv("USER", "somebody-else")
    assert who() == f"{pwd.getpwuid(os.geteuid()).pw_name}@{socket.gethostname()}"
