"""An alert about records that need an operator is sent again after they were all settled, and not before."""

from __future__ import annotations

import pytest

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


def test_each_channel_is_forgotten_by_its_own_check(client: SyncClient, sent: list[str]) -> None:
    park(client, "wire 1")
    client.clock.advance("5m")
    send_by(client, sent, measure(client), "url")
    check(client, alert=sender(client, sent))
    assert len(sent) == 2
    resolve(client, "wire 1")
    client.clock.advance("5m")
    check(client, alert=sender(client, sent))
    park(client, "wire 2")
    client.clock.advance("5m")
    send_by(client, sent, measure(client), "url")
    assert len(sent) == 2, "no check of this channel has seen that it was solved"
    check(client, alert=sender(client, sent))
    assert len(sent) == 3


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
