"""`once.check()`: rules on the content of the store; and no alert is sent twice."""

from __future__ import annotations

import threading
import time
from datetime import datetime
from typing import Any

import pytest

from onceward import Once
from onceward.observe.rules import Broken
from onceward.protocol.counters import HOUR, CounterRow
from onceward.protocol.operation_names import ALERT
from onceward.runtime.threads import run
from tests.clients import AsyncClient, SyncClient
from tests.integration.hourly_runs import hourly, ran
from tests.planned import start_at, utc

__all__ = ["ran"]  # a fixture, re-exported so that pytest finds it


def plant(client: SyncClient, **numbers: int) -> None:
    """Store these counts, as if another process had counted them in the current hour."""
    counter_row = CounterRow(b"another", client.clock.now() // HOUR, 1, {"shop/charge": numbers})
    client.drive(client.once.store.save_counts([counter_row], timeout=5))


def check(client: SyncClient, **how: Any) -> list[Broken]:
    found: list[Broken] = client.wait(client.once.check(**how))
    return found


def sender(client: SyncClient, sent: list[str]) -> Any:
    def send(broken: Broken) -> None:
        sent.append(str(broken))

    async def send_async(broken: Broken) -> None:
        send(broken)

    return send_async if isinstance(client, AsyncClient) else send


@pytest.fixture
def opened(client: SyncClient) -> SyncClient:
    client.run("any", int)
    return client


@pytest.mark.mission("A8")
def test_records_that_are_pending_for_long_are_found_in_the_store(opened: SyncClient) -> None:
    for number in range(4):
        opened.silent_owner(f"k{number}")
    assert opened.wait(opened.once.try_lock("leader")) is not None
    assert check(opened) == []
    opened.clock.advance("30m")
    assert check(opened) == [], "not longer than half an hour"
    opened.clock.advance("1s")
    [found] = check(opened)
    assert (found.rule, found.figure) == ("old_pending", 4)
    assert check(opened, rules={"old_pending_age": "40m"}) == []
    assert check(opened, rules={"old_pending": 4}) == []


@pytest.mark.mission("A8")
def test_counted_trouble_breaks_a_rule(opened: SyncClient) -> None:
    plant(opened, claim_errors=11, renewal_failures=6, unprotected=1)
    assert [one.rule for one in check(opened)] == ["claim_errors", "renewal_failures", "unprotected"]


@pytest.mark.mission("C10")
def test_an_alert_is_sent_once_however_often_it_is_looked_for(opened: SyncClient) -> None:
    plant(opened, claim_errors=11, unprotected=1)
    other = opened.another()
    other.run("any", int)
    sent: list[str] = []
    for client in (opened, other, opened):
        assert len(check(client, alert=sender(client, sent))) == 2
    assert [one.partition(":")[0] for one in sent] == ["claim_errors", "unprotected"]


@pytest.mark.mission("C10")
def test_an_alert_is_sent_once_although_the_figure_has_grown(opened: SyncClient) -> None:
    sent: list[str] = []
    plant(opened, claim_errors=11)
    check(opened, alert=sender(opened, sent))
    counter_row = CounterRow(b"another", opened.clock.now() // HOUR, 2, {"shop/charge": {"claim_errors": 50}})
    opened.drive(opened.once.store.save_counts([counter_row], timeout=5))
    check(opened, alert=sender(opened, sent))
    assert len(sent) == 1
    assert opened.events_named("mismatch") == []


@pytest.mark.mission("C10")
def test_a_rule_that_stays_broken_is_alerted_again_after_a_day(opened: SyncClient) -> None:
    sent: list[str] = []
    for _ in range(2):
        plant_again(opened)
        check(opened, alert=sender(opened, sent))
        opened.clock.advance("23h")
        plant_again(opened)
        check(opened, alert=sender(opened, sent))
        opened.clock.advance("2h")
    assert len(sent) == 2


def plant_again(client: SyncClient) -> None:
    hour = client.clock.now() // HOUR
    counter_row = CounterRow(b"another", hour, 1, {"shop/charge": {"claim_errors": 11}})
    client.drive(client.once.store.save_counts([counter_row], timeout=5))


@pytest.mark.mission("C10")
def test_each_scope_gets_its_own_alert(opened: SyncClient) -> None:
    counts = {name: {"replayed": 50, "executed": 50} for name in ("shop/a", "shop/b")}
    counter_row = CounterRow(b"another", opened.clock.now() // HOUR, 1, counts)
    opened.drive(opened.once.store.save_counts([counter_row], timeout=5))
    sent: list[str] = []
    for _ in range(2):
        check(opened, alert=sender(opened, sent))
    assert [one.partition(":")[0] for one in sent] == ["replay_rate in shop/a", "replay_rate in shop/b"]


@pytest.mark.mission("C10", "B5")
def test_an_alert_that_could_not_be_sent_is_tried_by_the_next_check(opened: SyncClient) -> None:
    plant(opened, claim_errors=11)
    sent: list[str] = []
    send = sender(opened, sent)

    def refuse(broken: Broken) -> None:
        raise ConnectionError("no mail today")

    async def refuse_async(broken: Broken) -> None:
        refuse(broken)

    check(opened, alert=refuse_async if isinstance(opened, AsyncClient) else refuse)
    assert opened.events_named("failed")[-1].error == "ConnectionError"
    check(opened, alert=send)
    check(opened, alert=send)
    assert len(sent) == 1


@pytest.mark.mission("C10")
def test_what_a_client_declares_about_its_own_work_does_not_keep_an_alert_from_being_tried_again(
    client: SyncClient,
) -> None:
    strict = client.another(max_attempts=1, retry_delay="2h", after_crash="park", retry_span="7d", window="30d")
    strict.run("any", int)
    plant(strict, claim_errors=11)
    sent: list[str] = []

    def refuse(broken: Broken) -> None:
        raise ConnectionError("no mail today")

    async def refuse_async(broken: Broken) -> None:
        refuse(broken)

    check(strict, alert=refuse_async if isinstance(strict, AsyncClient) else refuse)
    check(strict, alert=sender(strict, sent))
    assert len(sent) == 1


def test_an_operation_of_the_users_that_is_called_alert_is_watched_like_any_other(opened: SyncClient) -> None:
    counter_row = CounterRow(
        b"another", opened.clock.now() // HOUR, 1, {"outreach/alert": {"replayed": 50, "executed": 50}}
    )
    opened.drive(opened.once.store.save_counts([counter_row], timeout=5))
    assert [(one.rule, one.scope) for one in check(opened)] == [("replay_rate", "outreach/alert")]


@pytest.mark.mission("C10")
def test_only_one_of_many_concurrent_checks_sends_the_alert(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/once.db"
    clients = [Once(url) for _ in range(6)]
    clients[0].run("any", int)
    hour = time.time_ns() // 1_000 // HOUR
    store: Any = clients[0].store
    run(store.save_counts([CounterRow(b"another", hour, 1, {"shop/charge": {"claim_errors": 11}})], timeout=5))
    barrier, sent = threading.Barrier(len(clients)), []

    def look(once: Once) -> None:
        barrier.wait(60)
        once.check(alert=lambda broken: sent.append(broken.rule))

    threads = [threading.Thread(target=look, args=(once,)) for once in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for once in clients:
        once.close()
    assert sent == ["claim_errors"]


@pytest.mark.mission("C10")
def test_the_alerts_themselves_break_no_rule(client: SyncClient) -> None:
    counting = client.another(counters=True)
    counting.run("any", int)
    plant(counting, claim_errors=11)
    sent: list[str] = []
    for _ in range(30):
        check(counting, alert=sender(counting, sent))
    assert counting.once.counters.write()
    tally = counting.wait(counting.once.stats())
    assert tally.total("replayed", f"default/{ALERT}") == 29
    assert [one.rule for one in check(counting)] == ["claim_errors"]


@pytest.mark.finding("N23")
def test_parked_records_and_final_failures_are_found_in_the_store(opened: SyncClient) -> None:
    def fail() -> None:
        raise ValueError("no such card")

    opened.silent_owner("wire", lease="10s", after_crash="park")
    opened.clock.advance("11s")
    opened.another(after_crash="park").outcome("wire", int)
    for key, attempts in (("mail", 1), ("pdf", 3)):
        opened.another(max_attempts=attempts, window="7d").outcome(key, fail)
    found = {one.rule: (one.scope, one.figure) for one in check(opened)}
    assert found == {"parked": ("default/shared", 1), "failed_final": ("default/shared", 1)}, "pdf is retried"
    opened.clock.advance("25h")
    assert [one.rule for one in check(opened)] == ["parked"], "the failure is of yesterday"


@pytest.mark.finding("N23")
def test_a_schedule_without_a_runner_is_stuck_an_hour_after_its_next_slot(
    client: SyncClient, ran: list[datetime]
) -> None:
    start_at(client.clock, utc(2026, 1, 1, 8, 30))
    runner = hourly(client, ran)
    runner.run_due()
    runner.sleep_until(utc(2026, 1, 1, 9, 1))
    assert check(client) == []
    client.clock.advance("1h58m")  # 10:59; the next slot was at 10:00
    assert check(client) == []
    client.clock.advance("2m")
    [found] = check(client)
    assert (found.rule, found.figure) == ("stuck_schedules", 1)
    assert "default/schedule:hourly" in found.said
    runner.sleep_until(utc(2026, 1, 1, 12, 1))
    assert check(client) == []
