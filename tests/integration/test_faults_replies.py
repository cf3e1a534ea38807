"""Replies of the store that are lost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from onceward import Executed, RecordState, Replayed
from tests.clients import SyncClient
from tests.faulty import FaultyNetwork
from tests.integration.faulty_clients import Effect, faulty, network

__all__ = ["faulty", "network"]  # fixtures, listed here so that pytest finds them


@pytest.mark.fault("F53")
@pytest.mark.rival(20)
@pytest.mark.parametrize("times", [1, 2])
def test_a_claim_whose_reply_was_lost_is_recognised_as_our_own(
    faulty: SyncClient, network: FaultyNetwork, times: int
) -> None:
    effect = Effect()
    network.lose_replies("claim", times)
    outcome = faulty.outcome("order 7", effect)
    assert (outcome.kind, outcome.attempt, effect.times) == ("executed", 1, 1)
    assert network.calls["claim"] == times + 1
    assert len(set(network.nonces["claim"])) == 1


@pytest.mark.fault("F53")
def test_a_batch_whose_reply_was_lost_runs_each_item_once(faulty: SyncClient, network: FaultyNetwork) -> None:
    runs: list[int] = []

    def counted(item: int) -> int:
        runs.append(item)
        return item

    worker = faulty.another(wait="5s", lease="10m")
    network.lose_replies("claim", 1)
    answer = worker.start(worker.map, counted, [1, 2, 3])
    outcomes = answer.result(60)
    assert [outcome.unwrap() for outcome in outcomes] == [1, 2, 3]
    assert sorted(runs) == [1, 2, 3]


@pytest.mark.fault("F53")
@pytest.mark.parametrize("times", [1, 3])
def test_a_completion_whose_reply_was_lost_is_repeated_and_fine(
    faulty: SyncClient, network: FaultyNetwork, times: int
) -> None:
    effect = Effect()
    network.lose_replies("settle", times)
    assert isinstance(faulty.outcome("order 7", effect), Executed)
    assert network.calls["settle"] == times + 1
    assert isinstance(faulty.outcome("order 7", effect), Replayed)
    assert effect.times == 1


@pytest.mark.finding("N73")
def test_a_completion_without_a_reply_is_repeated_once_however_late_it_is(
    faulty: SyncClient, network: FaultyNetwork
) -> None:
    """The reply to the first try is lost after `settle_timeout` has passed, as after a stall of the process."""
    effect, worker = Effect(), faulty.another(lease="10m", settle_timeout=timedelta(microseconds=1))
    network.lose_replies("settle", 1)
    assert isinstance(worker.outcome("order 7", effect), Executed)
    assert network.calls["settle"] == 2


@pytest.mark.fault("F53")
def test_a_failure_whose_reply_was_lost_is_repeated_and_counts_once(faulty: SyncClient, network: FaultyNetwork) -> None:
    def breaks() -> None:
        raise ConnectionError("no route")

    network.lose_replies("settle", 1)
    with pytest.raises(ConnectionError):
        faulty.run("order 7", breaks)
    entry = faulty.read("order 7")
    assert (entry.state, entry.attempt) == (RecordState.FAILED, 1)


@pytest.mark.fault("F53")
def test_a_parking_whose_reply_was_lost_is_repeated_and_fine(faulty: SyncClient, network: FaultyNetwork) -> None:
    careful = faulty.another(after_crash="park")

    def breaks() -> None:
        raise ConnectionError("no route")

    network.lose_replies("settle", 1)
    with pytest.raises(ConnectionError):
        careful.run("order 7", breaks)
    assert careful.read("order 7").state is RecordState.PARKED
    assert len(careful.events_named("parked")) == 1


@pytest.mark.fault("F53")
def test_a_renewal_whose_reply_was_lost_costs_nothing(faulty: SyncClient, network: FaultyNetwork) -> None:
    with faulty.claim("order 7", lease="10m") as claim:
        faulty.clock.advance("3m")
        network.lose_replies("renew", 1)
        faulty.renew_leases()
        claim.check()
        faulty.clock.advance("1m")
        faulty.renew_leases()
        faulty.clock.advance("9m")
        claim.check()
    assert len(faulty.events_named("renewal_failed")) == 1
    assert faulty.events_named("lost") == []


@pytest.mark.fault("F53")
def test_every_reply_of_every_verb_lost_once_still_gives_one_effect(faulty: SyncClient, network: FaultyNetwork) -> None:
    effect = Effect()
    for verb in ("claim", "settle", "renew"):
        network.lose_replies(verb, 1)
    outcome = faulty.outcome("order 7", effect)
    assert (outcome.kind, outcome.attempt) == ("executed", 1)
    assert faulty.outcome("order 7", effect).replayed
    assert effect.times == 1
