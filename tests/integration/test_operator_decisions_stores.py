"""What an operator decides about parked work holds on every store, for sync and async clients."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onceward import Failed, PreviouslyFailed, RecordState, Replayed, abandon, applied, lasting
from onceward.administration.actions import Action, FindingName
from onceward.protocol.window import recorded_window
from onceward.testing import FakeClock
from tests.administration.shop import admin_of
from tests.clients import Backend, SyncClient, make_backend

KEY = "wire:4"


@pytest.fixture(
    params=["memory", "sqlite", "postgres", "valkey", *os.environ.get("ONCEWARD_TEST_BACKENDS", "").split()]
)
def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Backend:
    """Each store; `make soak` adds Firestore, whose emulator is slow."""
    return make_backend(request, tmp_path, clock)


class Transfer:
    """Work that times out the first time, so that it is parked."""

    def __init__(self) -> None:
        self.calls = 0

    def send(self) -> str:
        self.calls += 1
        if self.calls == 1:
            raise TimeoutError
        return "sent"


@pytest.fixture
def transfer(client: SyncClient) -> Transfer:
    """A parked transfer, whose window is nine days."""
    transfer = Transfer()
    client.once = client.once.using(after_crash="park", window="9d")
    with pytest.raises(TimeoutError):
        client.run(KEY, transfer.send)
    return transfer


def decide(client: SyncClient, action: Action) -> tuple[int, list[str]]:
    """Change the record as the console does. Return how many records changed, and why others did not."""
    admin = admin_of(client)
    preview = admin.preview(action, ids=[client.once.key(KEY).id.hex()])
    return len(admin.apply(preview).done), [one.reason for one in preview.refused]


@pytest.mark.finding("N26")
def test_abandoned_work_does_not_run_again(client: SyncClient, transfer: Transfer) -> None:
    client.resolve(KEY, abandon)
    outcome = client.outcome(KEY, transfer.send)
    assert isinstance(outcome, Failed)
    assert outcome.abandoned
    with pytest.raises(PreviouslyFailed, match="an operator abandoned it"):
        client.run(KEY, transfer.send)
    assert transfer.calls == 1


@pytest.mark.finding("N26")
def test_abandoned_work_is_retried_only_by_force(client: SyncClient, transfer: Transfer) -> None:
    client.resolve(KEY, abandon)
    changed, [reason] = decide(client, Action(verb="retry"))
    assert not changed
    assert "an operator abandoned it" in reason
    assert decide(client, Action(verb="retry", force=True)) == (1, [])
    assert client.run(KEY, transfer.send) == "sent"


@pytest.mark.finding("N15")
def test_work_resolved_as_applied_replays_the_result_of_the_operator(client: SyncClient, transfer: Transfer) -> None:
    client.resolve(KEY, applied("TX-1"))
    outcome = client.outcome(KEY, transfer.send)
    assert isinstance(outcome, Replayed)
    assert outcome.value == "TX-1"
    assert transfer.calls == 1


@pytest.mark.finding("N15")
@pytest.mark.parametrize("finding", ["applied", "abandon"])
def test_the_decision_holds_for_the_window_of_the_work(
    client: SyncClient, transfer: Transfer, finding: FindingName
) -> None:
    assert decide(client, Action(verb="resolve", finding=finding)) == (1, [])
    assert recorded_window(client.read(KEY).record) == lasting("9d")
    client.clock.advance("8d")
    assert not client.outcome(KEY, transfer.send).executed
    client.clock.advance("2d")
    assert client.run(KEY, transfer.send) == "sent"


@pytest.mark.finding("N23")
def test_abandoned_work_no_longer_needs_an_operator(client: SyncClient, transfer: Transfer) -> None:
    assert admin_of(client).overview().broken
    client.resolve(KEY, abandon)
    assert client.read(KEY).state is RecordState.FAILED
    assert admin_of(client).overview().broken == []
