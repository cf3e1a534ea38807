"""An alert about records that need an operator is sent again after they were all settled, and not before."""

from __future__ import annotations

import pytest

from onceward import StoreUnavailable, inconclusive, verify
from onceward.client.alerts import send_alerts
from onceward.observe.figures import figures
from onceward.observe.rules import Figures
from onceward.observe.thresholds import Thresholds
from onceward.protocol.policy import applied
from tests.clients import SyncClient
from tests.integration.test_checks_and_alerts import check, sender

DEFAULT = Thresholds()

pytestmark = pytest.mark.finding("N23")


def park(client: SyncClient, key: str) -> None:
    def time_out() -> None:
        raise TimeoutError

    client.another(after_crash="park").outcome(key, time_out)


def resolve(client: SyncClient, key: str) -> None:
    client.resolve(key, applied(1))


@pytest.fixture
def sent(client: SyncClient) -> list[str]:
    client.run("any", int)
    return []


def test_a_record_that_is_parked_after_the_others_were_resolved_sends_an_alert(
    client: SyncClient, sent: list[str]
) -> None:
    for key in ("wire 1", "wire 2"):
        park(client, key)
        client.clock.advance("5m")
        assert len(check(client, alert=sender(client, sent))) == 1
        assert len(check(client, alert=sender(client, sent))) == 1
        resolve(client, key)
        client.clock.advance("5m")
        assert check(client, alert=sender(client, sent)) == []
    assert [text.partition(":")[0] for text in sent] == ["parked in default/shared"] * 2


def test_while_another_record_is_parked_no_further_alert_is_sent(client: SyncClient, sent: list[str]) -> None:
    for key in ("wire 1", "wire 2", "wire 3"):
        park(client, key)
        client.clock.advance("5m")
        check(client, alert=sender(client, sent))
    resolve(client, "wire 1")
    client.clock.advance("5m")
    check(client, alert=sender(client, sent))
    assert len(sent) == 1


def test_a_check_with_a_higher_threshold_does_not_repeat_the_alerts_of_others(
    client: SyncClient, sent: list[str]
) -> None:
    park(client, "wire 1")
    for _ in range(3):
        client.clock.advance("5m")
        check(client, alert=sender(client, sent))
        assert check(client, alert=sender(client, sent), rules={"parked": 5}) == []
    assert len(sent) == 1


def test_each_channel_reports_each_problem_once(client: SyncClient, sent: list[str]) -> None:
    for number, key in enumerate(("wire 1", "wire 2"), 1):
        park(client, key)
        for _ in range(2):
            client.clock.advance("5m")
            send_by(client, sent, measure(client), "url")
            check(client, alert=sender(client, sent))
        assert len(sent) == 2 * number
        resolve(client, key)


def test_an_alert_that_was_sent_after_the_figures_were_read_is_kept(client: SyncClient, sent: list[str]) -> None:
    before = measure(client)
    client.clock.advance("1s")
    park(client, "wire 1")
    check(client, alert=sender(client, sent))
    send_by(client, sent, before)
    check(client, alert=sender(client, sent))
    assert len(sent) == 1


def measure(client: SyncClient) -> Figures:
    found: Figures = client.drive(figures(client.once.store, DEFAULT))
    return found


def send_by(client: SyncClient, sent: list[str], measured: Figures, channel: str = "") -> None:
    client.drive(send_alerts(client.once, measured, sender(client, sent), DEFAULT, channel))


def test_a_check_with_another_age_does_not_repeat_the_alerts_of_others(client: SyncClient, sent: list[str]) -> None:
    client.silent_owner("wire 1", after_crash=verify(lambda *_: inconclusive))
    client.clock.advance("40m")
    for _ in range(3):
        client.clock.advance("5m")
        assert [one.rule for one in check(client, alert=sender(client, sent))] == ["parked"]
        assert check(client, alert=sender(client, sent), rules={"old_pending_age": "1d"}) == []
    assert len(sent) == 1


def test_a_record_that_is_parked_while_the_last_one_is_resolved_sends_an_alert(
    client: SyncClient, sent: list[str]
) -> None:
    park(client, "wire 1")
    client.clock.advance("5m")
    check(client, alert=sender(client, sent))
    client.clock.advance("5m")
    resolve(client, "wire 1")
    park(client, "wire 2")
    client.clock.advance("5m")
    check(client, alert=sender(client, sent))
    assert len(sent) == 2


def test_work_that_becomes_old_after_the_others_were_resolved_sends_an_alert(
    client: SyncClient, sent: list[str]
) -> None:
    client.silent_owner("wire 1", after_crash=verify(lambda *_: inconclusive))
    client.clock.advance("11m")
    park(client, "wire 2")
    for _ in range(2):
        check(client, alert=sender(client, sent))
        client.clock.advance("5m")
    resolve(client, "wire 2")
    client.clock.advance("20m")
    for _ in range(2):
        check(client, alert=sender(client, sent))
        client.clock.advance("5m")
    assert len(sent) == 2


def test_failures_whose_windows_end_send_one_alert(client: SyncClient, sent: list[str]) -> None:
    for number in range(20):
        client.another(final=ValueError, window="2m").outcome(f"mail {number}", int, "seven")
        client.clock.advance("1m")
        check(client, alert=sender(client, sent))
    assert len(sent) == 1


def test_a_scope_with_a_long_name_sends_one_alert(client: SyncClient, sent: list[str]) -> None:
    client.silent_owner("wire 1", name="w" * 195, after_crash="park")  # with the rule, longer than a key's text
    client.clock.advance("10m")
    for _ in range(3):
        client.clock.advance("5m")
        assert len(check(client, alert=sender(client, sent))) == 1
    assert len(sent) == 1


def test_alerts_are_sent_even_if_solved_ones_cannot_be_searched(
    client: SyncClient, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    park(client, "wire 1")
    client.clock.advance("5m")
    measured = measure(client)

    async def fail(*_: object, **__: object) -> object:
        raise StoreUnavailable("the store takes too long")

    monkeypatch.setattr(type(client.once.store), "scan", fail)
    with pytest.raises(StoreUnavailable):
        send_by(client, sent, measured)
    assert len(sent) == 1
