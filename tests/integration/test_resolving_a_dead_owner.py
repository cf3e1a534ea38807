"""A key whose worker died can be resolved on every store before the next delivery parks it."""

from __future__ import annotations

import pytest

from onceward import NotAcquired, RecordState, applied, inconclusive, not_applied, verify
from onceward.errors import LeaseLost
from onceward.protocol.requests import ClaimRequest, Release
from tests.clients import SyncClient

pytestmark = pytest.mark.parametrize("backend", ["memory", "sqlite", "postgres", "valkey"], indirect=True)


def test_the_next_delivery_replays_what_the_operator_found(client: SyncClient) -> None:
    late = client.silent_owner("wire:1", after_crash="park")
    with pytest.raises(NotAcquired, match="nothing to resolve: its lease has not expired"):
        client.resolve("wire:1", applied("TX-1"))
    client.clock.advance("1h")
    client.resolve("wire:1", applied("TX-1"))
    assert client.read("wire:1").state is RecordState.COMPLETED
    assert client.outcome("wire:1", str).value == "TX-1"
    with pytest.raises(LeaseLost):
        late.complete("late")


def test_work_that_was_not_done_runs_again(client: SyncClient) -> None:
    client.silent_owner("wire:1", after_crash="park")
    client.clock.advance("1h")
    client.resolve("wire:1", not_applied)
    assert client.outcome("wire:1", str).attempt == 2


def test_work_that_the_next_delivery_verifies_is_not_resolved(client: SyncClient) -> None:
    client.silent_owner("wire:1", after_crash=verify(lambda *_: inconclusive))
    client.clock.advance("1h")
    before, store = client.read("wire:1").record, client.once.store
    claim = ClaimRequest(before.id, before.scope, before.key, bytes(16), 1_000_000, before.fingerprint)
    [answer] = client.drive(store.claim([claim], timeout=5))
    client.drive(store.settle([Release(before.id, answer.record.token, claim.nonce)], timeout=5))
    with pytest.raises(NotAcquired, match="it was released before verification"):
        client.resolve("wire:1", applied("TX-1"))
