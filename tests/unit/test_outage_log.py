"""Which lines the outage log writes for a given sequence of events."""

from __future__ import annotations

import logging

import pytest

from onceward.engine.events import Bus, Event
from onceward.observe import outage_log
from onceward.observe.log import logger
from onceward.observe.outage_log import OutageLog

pytestmark = pytest.mark.finding("N24")

NO_RESPONSE = "the store does not respond"
REFUSES = "the store cannot be used"
RESPONDS = "the store responds again"
WORKS = "the store works again"


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(outage_log, "time", clock)
    return clock


class Feed:
    """Sends events to an outage log and returns the lines that each of them adds."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        outages = OutageLog()
        self.bus = outages.bus = Bus(outages, logger.isEnabledFor, lambda event, error: pytest.fail(f"{event} {error}"))

    def __call__(self, name: str, error: str = "") -> list[str]:
        before = len(self._caplog.records)
        if self.bus.wants(name):
            self.bus.emit(Event(name=name, key="k", scope="s", error=error))
        return [one.getMessage() for one in self._caplog.records[before:] if one.levelno >= logging.WARNING]


@pytest.fixture
def feed(caplog: pytest.LogCaptureFixture, clock: Clock) -> Feed:
    caplog.set_level(logging.WARNING, "onceward")
    return Feed(caplog)


@pytest.mark.parametrize(
    "sign", ["claim_failed", "renewal_failed", "settle_retried", "counting_failed", "schedule_delayed"]
)
@pytest.mark.parametrize("error", ["StoreUnavailable", "StoreFull", "StoreBroken: a file", "StoreNotSetUp: no tables"])
def test_each_sign_begins_an_outage_and_is_counted_after_that(feed: Feed, sign: str, error: str) -> None:
    [first] = feed(sign, error)
    assert (NO_RESPONSE if error == "StoreUnavailable" else REFUSES) in first
    assert feed(sign, error) == []
    [end] = feed("acquired")
    assert end.endswith(f"problems not logged: 1 (1 {sign})")


@pytest.mark.parametrize("error", ["RecordBroken: its content", "ResultCorrupt", "an error named StoreBroken", ""])
def test_an_error_that_concerns_one_key_is_logged_each_time_and_hides_nothing(feed: Feed, error: str) -> None:
    for _ in range(3):
        [line] = feed("claim_failed", error)
        assert NO_RESPONSE not in line
        assert REFUSES not in line
    assert feed("acquired") == []


@pytest.mark.parametrize("response", sorted(outage_log.RESPONSES))
def test_a_refusal_ends_with_a_write_and_silence_with_any_response(feed: Feed, response: str) -> None:
    feed("claim_failed", "StoreUnavailable")
    assert feed(response)[0].startswith(RESPONDS)
    feed("claim_failed", "StoreFull")
    lines = feed(response)
    if response in {"acquired", "completed", "applied", "resolved", "step_done"}:
        assert lines[0].startswith(WORKS)
    else:
        assert not [line for line in lines if "again" in line]
        assert feed("completed")[0].startswith(WORKS)


def test_a_second_cause_of_the_same_outage_is_logged(feed: Feed) -> None:
    assert NO_RESPONSE in feed("claim_failed", "StoreUnavailable")[0]
    assert REFUSES in feed("not_set_up", "run migrate")[0]
    assert REFUSES in feed("claim_failed", "StoreFull")[0]
    assert [feed("claim_failed", "StoreFull"), feed("not_set_up", ""), feed("claim_failed", "StoreUnavailable")] == [
        []
    ] * 3
    [end] = feed("completed")
    assert end.startswith(WORKS)
    assert end.endswith("problems not logged: 3 (2 claim_failed, 1 not_set_up)")


def test_a_full_store_that_then_stops_is_logged_again_after_a_response(feed: Feed) -> None:
    feed("claim_failed", "StoreFull")
    assert NO_RESPONSE in feed("claim_failed", "StoreUnavailable")[0]
    assert feed("skipped") == []
    assert NO_RESPONSE in feed("claim_failed", "StoreUnavailable")[0]
    assert feed("claim_failed", "StoreFull") == []


def test_a_process_that_only_reads_ends_a_refusal_after_a_quiet_time(feed: Feed, clock: Clock) -> None:
    feed("claim_failed", "StoreFull")
    clock.now += outage_log.QUIET - 1
    assert feed("skipped") == []
    assert feed("claim_failed", "StoreFull") == []
    clock.now += outage_log.QUIET - 1
    assert feed("skipped") == [], "the last failure counts, not the first"
    clock.now += 1
    [end] = feed("skipped")
    assert end.startswith(f"{RESPONDS} after {2 * outage_log.QUIET - 1:.1f} s; problems not logged: 1")
    assert REFUSES in feed("claim_failed", "StoreFull")[0]


def test_consequences_are_counted_and_everything_else_is_logged(feed: Feed) -> None:
    feed("claim_failed", "StoreUnavailable")
    assert feed("overdue") == []
    assert feed("unprotected")[0].startswith("unprotected k [s]")
    assert feed("lost")[0].startswith(RESPONDS)
    assert feed("overdue") != []
