"""Policy: the defaults are those of the documented table, and what cannot work is refused while declaring."""

from __future__ import annotations

import ast
import re
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest

from onceward import Once
from onceward.errors import ConfigurationError, OncewardWarning
from onceward.protocol import policy as policies
from onceward.protocol.policy import RENEWALS_PER_LEASE, Policy, Settings, verify
from onceward.protocol.record import AfterCrash
from onceward.protocol.window import calendar, forever, lasting, sliding

SECOND = 1_000_000
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "defaults.md"


def lines_of_the_table() -> list[list[str]]:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def documented() -> dict[str, list[str]]:
    """Setting → [default, meaning, choices]."""
    return {name.strip("`"): rest for name, *rest in lines_of_the_table()}


def with_one(name: str, value: Any) -> Policy:
    settings: Any = {name: value}
    return Policy().with_settings(settings)


def test_the_page_names_every_setting_once_and_no_other() -> None:
    names = [cells[0].strip("`") for cells in lines_of_the_table()]
    assert sorted(names) == sorted(Settings.__optional_keys__)
    assert {len(cells) for cells in lines_of_the_table()} == {4}


@pytest.mark.parametrize("name", sorted(Settings.__optional_keys__))
def test_the_documented_default_is_the_real_one(name: str) -> None:
    default = ast.literal_eval(documented()[name][0].strip("`"))
    assert with_one(name, default) == Policy()


def test_renewals_come_as_often_as_documented() -> None:
    assert documented()["heartbeat"][2].endswith("`None` for a fifth of the lease")
    assert RENEWALS_PER_LEASE == 5


@pytest.mark.parametrize("heartbeat", ["0s", "9ms", "5001ms", "10s"])
def test_one_late_renewal_does_not_lose_the_lease(heartbeat: str) -> None:
    assert Policy().with_settings({"lease": "10s", "heartbeat": "5s"}).heartbeat == 5 * SECOND
    assert Policy().with_settings({"lease": "10s", "heartbeat": "10ms"}).heartbeat == SECOND // 100
    with pytest.raises(ConfigurationError, match="choose between 10ms and half of the lease"):
        Policy().with_settings({"lease": "10s", "heartbeat": heartbeat})


def test_a_shorter_lease_does_not_inherit_a_heartbeat_that_is_too_long_for_it() -> None:
    client = Policy().with_settings({"lease": "10m", "heartbeat": "2m"})
    assert client.with_settings({"lease": "4m"}).heartbeat == 120 * SECOND
    assert client.with_settings({"lease": "30s"}).heartbeat is None
    with Once("memory://", lease="10m", heartbeat="2m") as once, once.lock("sync", lease="30s"):
        [held] = once.heartbeat.held()
        assert held.ends - held.renew_at == pytest.approx(24, abs=0.001)


def test_before_find_a_new_owner_waits_for_the_time_that_the_lease_does_not_cover() -> None:
    found = verify(lambda: None, after="10s")
    assert Policy().with_settings({"lease": "10s", "after_crash": found}).wait_before_find == 2 * SECOND
    rarely: Settings = {"lease": "10s", "heartbeat": "5s", "after_crash": found}
    assert Policy().with_settings(rarely).wait_before_find == 5 * SECOND


@pytest.mark.finding("N27")
@pytest.mark.parametrize(("lease", "seconds"), [("60s", 600), ("10m", 600), ("15m", 900)])
def test_a_result_is_sent_for_the_longer_of_the_lease_and_ten_minutes(lease: str, seconds: int) -> None:
    assert with_one("lease", lease).settle_time == seconds * SECOND
    assert with_one("lease", lease).with_settings({"settle_timeout": "5s"}).settle_time == 5 * SECOND


def test_the_promised_defaults() -> None:
    policy = Policy()
    assert policy.lease == 60 * SECOND
    assert policy.window == lasting("24h")
    assert (policy.on_running, policy.wait, policy.on_done) == ("wait", 75 * SECOND, "replay")
    assert policy.after_crash is AfterCrash.RERUN
    assert policy.max_attempts == 0
    assert (policy.on_store_down, policy.on_missing_key) == ("raise", "raise")


@pytest.mark.rival(30)
@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("on_running", policies.OnRunning),
        ("on_done", policies.OnDone),
        ("on_store_down", policies.OnStoreDown),
        ("on_missing_key", policies.OnMissingKey),
        ("on_lost", policies.OnLost),
    ],
)
def test_every_documented_choice_works_and_any_other_is_refused(name: str, choices: Any) -> None:
    words = re.findall(r'`"(\w+)"`', documented()[name][2])
    assert tuple(words) == get_args(choices)
    for word in words:
        assert getattr(with_one(name, word), name) == word
    for wrong in ("explode", "", None, True):
        with pytest.raises(ConfigurationError, match=name):
            with_one(name, wrong)


def test_after_crash_is_rerun_park_or_a_question() -> None:
    assert with_one("after_crash", "rerun").after_crash is AfterCrash.RERUN
    assert with_one("after_crash", "park").after_crash is AfterCrash.PARK
    asked = with_one("after_crash", verify(len))
    assert (asked.after_crash, asked.find) == (AfterCrash.VERIFY, len)
    again = asked.with_settings({"after_crash": "park"})
    assert (again.after_crash, again.find) == (AfterCrash.PARK, None)
    for wrong in ("verify", "ask", None, len, 2):
        with pytest.raises(ConfigurationError, match="after_crash"):
            with_one("after_crash", wrong)


@pytest.mark.fault("F46")
@pytest.mark.parametrize("lease", [0, -1, "0s", 0.049, "8d", timedelta(days=-1), 1e300, float("inf"), "49ms"])
def test_a_lease_that_cannot_work_is_refused(lease: Any) -> None:
    with pytest.raises(ConfigurationError, match="lease"):
        with_one("lease", lease)


@pytest.mark.fault("F46")
@pytest.mark.parametrize("lease", [0.05, "50ms", "7d", timedelta(minutes=10), 600])
def test_a_lease_within_the_bounds_is_taken(lease: Any) -> None:
    assert with_one("lease", lease).lease > 0


@pytest.mark.fault("F47")
@pytest.mark.parametrize("window", ["71h", sliding("71h"), lasting("71h", since="attempt")])
def test_a_window_shorter_than_the_senders_retry_span_is_warned_about(window: Any) -> None:
    with pytest.warns(OncewardWarning, match="retry span"):
        Policy().with_settings({"window": window, "retry_span": "72h"})


@pytest.mark.fault("F47")
@pytest.mark.parametrize("window", ["72h", forever, "forever", "30d"])
def test_a_window_that_covers_the_senders_retry_span_is_not_warned_about(window: Any) -> None:
    Policy().with_settings({"window": window, "retry_span": "72h"})


@pytest.mark.fault("F47")
def test_a_calendar_day_shorter_than_the_senders_retry_span_is_warned_about() -> None:
    with pytest.warns(OncewardWarning, match="retry span"):
        Policy().with_settings({"window": calendar("UTC"), "retry_span": "72h"})


def test_settings_add_up_and_leave_the_earlier_policy_as_it_was() -> None:
    first = with_one("lease", "1m")
    second = first.with_settings({"window": "forever", "wait": "1s"})
    assert (second.lease, second.window, second.wait) == (60 * SECOND, forever, SECOND)
    assert first == with_one("lease", "1m")


@pytest.mark.rival(4)
def test_a_word_that_is_no_setting_is_refused_and_the_settings_are_named() -> None:
    with pytest.raises(ConfigurationError, match=r"there is no setting 'leese'.*lease"):
        with_one("leese", "1m")
    with pytest.raises(ConfigurationError, match=r"did you mean 'cipher'\?.*app, .*window"):
        Once("memory://", cypher=None)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="did you mean 'payload'"):
        Once("memory://").claim("k", payloud=1)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="there is no setting 'find'"):
        with_one("find", len)


@pytest.mark.parametrize("name", ["final", "retry", "not_applied"])
def test_exceptions_are_given_one_or_many(name: str) -> None:
    assert getattr(with_one(name, ValueError), name) == (ValueError,)
    assert getattr(with_one(name, (ValueError, OSError)), name) == (ValueError, OSError)
    for wrong in (int, ("ValueError",), (ValueError(),)):
        with pytest.raises(ConfigurationError, match=name):
            with_one(name, wrong)


def test_attempts_are_counted_from_one_or_not_at_all() -> None:
    assert with_one("max_attempts", 3).max_attempts == 3
    assert with_one("max_attempts", None).max_attempts == 0
    for wrong in (0, -1, 1.5, "3"):
        with pytest.raises(ConfigurationError, match="max_attempts"):
            with_one("max_attempts", wrong)


def test_a_retry_delay_may_depend_on_the_attempt() -> None:
    assert with_one("retry_delay", "5s").delay_after(7) == 5 * SECOND
    growing = with_one("retry_delay", lambda attempt: 2**attempt)
    assert [growing.delay_after(attempt) for attempt in (1, 2, 3)] == [2 * SECOND, 4 * SECOND, 8 * SECOND]
    with pytest.raises(ConfigurationError, match="retry_delay"):
        with_one("retry_delay", lambda attempt: -attempt).delay_after(1)


def test_a_fingerprint_is_all_none_or_named_arguments() -> None:
    assert with_one("fingerprint", "none").fingerprint == "none"
    assert with_one("fingerprint", ["amount", "to"]).fingerprint == ("amount", "to")
    with pytest.raises(ConfigurationError, match="fingerprint"):
        with_one("fingerprint", "amount")


@pytest.mark.rival(21)
@pytest.mark.fault("F52")
@pytest.mark.parametrize("lease", ["50ms", "3s", "600s", "7d"])
def test_a_store_call_may_take_a_third_of_the_lease_at_most_and_has_an_upper_limit(lease: str) -> None:
    policy = with_one("lease", lease)
    assert 0 < policy.call_timeout <= min(policy.lease / 3 / SECOND, 5)
