"""The audit of changes by hand: which user, when and why. From Python, sync and async, on both stores."""

from __future__ import annotations

import os
import socket

import pytest

from onceward import NotAcquired, abandon, applied
from onceward.client.audit_identity import user_and_host
from onceward.testing import FakeClock
from tests.clients import SyncClient


def park(client: SyncClient, key: str) -> None:
    with pytest.raises(TimeoutError), client.claim(key, after_crash="park"):
        raise TimeoutError("no answer")


def test_a_change_with_a_reason_can_be_looked_up_in_the_audit(client: SyncClient, clock: FakeClock) -> None:
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
    assert {one.who for one in entries} == {user_and_host()}
    assert (entries[0].when - entries[1].when).total_seconds() == 3600
    assert "sent" not in repr(entries), "results do not appear in the audit"
    assert client.audit("wire:1", within="30m") == entries[:1]
    assert client.audit(limit=1) == entries[:1]
    assert client.audit("wire:2") == []


def test_a_change_without_a_reason_is_not_audited(client: SyncClient) -> None:
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


def test_forget_with_seen_forgets_only_the_record_that_was_read(client: SyncClient) -> None:
    client.run("k", str)
    seen = client.read("k")
    client.forget("k")
    client.run("k", str)
    with pytest.raises(NotAcquired, match="changed since it was read"):
        client.forget("k", seen=seen, why="looked at it")
    assert client.audit() == []
    assert client.forget("k", seen=client.read("k"))
    assert not client.forget("k", seen=seen), "the key is already free"


@pytest.mark.skipif(os.name != "posix", reason="there, the user name comes from an environment variable")
def test_the_audit_names_the_user_of_the_process_and_not_of_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    monkeypatch.setenv("LOGNAME", "another-user")
    monkeypatch.setenv("USER", "another-user")
    assert user_and_host() == f"{pwd.getpwuid(os.geteuid()).pw_name}@{socket.gethostname()}"
