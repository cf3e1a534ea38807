"""The rules, one test on each side of every threshold; the thresholds, as files and callers write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from onceward import ConfigurationError
from onceward.cli.program import load_commands, program
from onceward.keys.key import Scope
from onceward.observe.rules import RULES, Broken, Figures, RecordFigures, check
from onceward.observe.thresholds import Thresholds, parse_thresholds
from onceward.protocol.counters import HOUR, CounterTotals, Counts
from onceward.protocol.operation_names import ALERT

load_commands()
NOW = 480_000 * HOUR + HOUR // 2
LATEST = NOW // HOUR
SCOPE = "shop/charge"
DEFAULT = Thresholds()

Cells = Mapping[tuple[int, str, str], int]
"""Return totals from counts by hours ago, scope and name."""


def figures(cells: Cells, old_pending: Mapping[str, int] | None = None) -> Figures:
    hours: dict[int, Counts] = {}
    for (ago, scope, name), number in cells.items():
        cell = hours.setdefault(LATEST - ago, {}).setdefault(scope, {})
        cell[name] = cell.get(name, 0) + number
    return Figures(CounterTotals(NOW, min(hours, default=LATEST), hours), RecordFigures(old_pending or {}))


def broken(cells: Cells, old_pending: Mapping[str, int] | None = None, limits: Thresholds = DEFAULT) -> list[Broken]:
    return check(figures(cells, old_pending), limits)


def names(found: list[Broken]) -> list[str]:
    return [one.rule for one in found]


def test_a_store_in_which_nothing_was_counted_breaks_no_rule() -> None:
    assert broken({}) == []


# ── an hour of problems ──


@pytest.mark.mission("A8")
@pytest.mark.parametrize("ago", [0, 1])
@pytest.mark.parametrize(("name", "limit"), [("claim_errors", 10), ("renewal_failures", 5)])
def test_problems_of_an_hour_are_reported_from_one_above_the_limit(name: str, limit: int, ago: int) -> None:
    assert broken({(ago, SCOPE, name): limit}) == []
    [found] = broken({(ago, SCOPE, name): limit + 1})
    assert (found.rule, found.scope, found.figure, found.limit) == (name, "", limit + 1, limit)
    assert str(limit + 1) in found.said
    assert found.todo


@pytest.mark.mission("A8")
@pytest.mark.parametrize(("name", "limit"), [("claim_errors", 10), ("renewal_failures", 5)])
def test_problems_are_added_up_over_scopes_but_not_over_hours(name: str, limit: int) -> None:
    assert names(broken({(0, SCOPE, name): limit, (0, "shop/other", name): 1})) == [name]
    assert broken({(0, SCOPE, name): limit, (1, SCOPE, name): limit}) == []
    assert broken({(2, SCOPE, name): 10 * limit}) == [], "two hours ago is not now"


@pytest.mark.mission("A8")
def test_a_skipped_duplicate_is_no_claim_error() -> None:
    assert broken({(0, SCOPE, "running"): 1_000}) == []


@pytest.mark.mission("A8")
def test_records_that_are_pending_for_long_are_reported_from_the_fourth_on() -> None:
    assert broken({}, {SCOPE: 2, "shop/other": 1}) == []
    [found] = broken({}, {SCOPE: 3, "shop/other": 1})
    assert (found.rule, found.figure) == ("old_pending", 4)
    assert "30m" in found.said
    assert SCOPE in found.said


@pytest.mark.mission("A9")
def test_a_single_unprotected_run_of_the_last_day_is_reported() -> None:
    assert broken({(24, SCOPE, "unprotected"): 1}) == []
    assert names(broken({(23, SCOPE, "unprotected"): 1})) == ["unprotected"]


# ── what needs an operator ──


def of_records(**found: Mapping[str, int]) -> list[Broken]:
    return check(Figures(CounterTotals(NOW, LATEST, {}), RecordFigures(**found)), DEFAULT)


@pytest.mark.finding("N23")
@pytest.mark.parametrize(
    ("name", "command"), [("parked", "onceward ls --state PARKED"), ("failed_final", "onceward ls --state FAILED")]
)
def test_one_record_that_needs_an_operator_is_reported_with_its_operation(name: str, command: str) -> None:
    assert of_records(**{name: {SCOPE: 0}}) == []
    [found] = of_records(**{name: {SCOPE: 1}})
    assert (found.rule, found.scope, found.figure) == (name, SCOPE, 1)
    assert f"`{command}`" in found.todo


@pytest.mark.finding("N23")
def test_a_stuck_schedule_is_reported_by_name() -> None:
    [found] = of_records(stuck_schedules={"shop/schedule:nightly": 1})
    assert found.said == "1 schedule is overdue by more than 1h (shop/schedule:nightly)"
    assert "`onceward schedule MODULE:APP`" in found.todo


@pytest.mark.finding("N23")
@pytest.mark.parametrize(("rule", "name"), [("unknown", "unknown"), ("dead_letters", "dead_lettered")])
def test_unknown_outcomes_and_dead_letters_of_the_last_day_are_reported(rule: str, name: str) -> None:
    assert broken({(24, SCOPE, name): 1}) == []
    [found] = broken({(23, "shop/charge@acme", name): 1})
    assert (found.rule, found.scope, found.figure) == (rule, SCOPE, 1)


@pytest.mark.finding("N23")
def test_every_rule_names_a_command_that_exists() -> None:
    for rule in RULES:
        commands = re.findall(r"`onceward (\S+?)`?[ `]", rule.todo)
        assert commands, rule.name
        assert set(commands) <= set(program.commands), rule.name


@pytest.mark.finding("N26")
def test_records_without_a_scope_leave_no_empty_parentheses() -> None:
    [found] = broken({}, {"": 4})
    assert found.said.endswith("more than 3")


# ── replays ──


def replays(replayed: int, executed: int, ago: int = 0) -> dict[tuple[int, str, str], int]:
    return {(ago, SCOPE, "replayed"): replayed, (ago, SCOPE, "executed"): executed}


@pytest.mark.mission("B8")
def test_a_replay_rate_of_five_percent_is_fine_and_above_it_is_reported() -> None:
    assert broken(replays(5, 95)) == []
    [found] = broken(replays(6, 94))
    assert (found.rule, found.scope) == ("replay_rate", SCOPE)
    assert found.figure == pytest.approx(0.06)
    assert "6.0%" in found.said
    assert "redelivers too often" in found.todo


@pytest.mark.mission("B8")
def test_a_rate_of_few_calls_says_nothing() -> None:
    assert broken(replays(2, 17)) == []
    assert names(broken(replays(2, 18))) == ["replay_rate"]


@pytest.mark.mission("B8")
def test_the_rate_is_of_the_last_day() -> None:
    assert names(broken(replays(6, 94, ago=23))) == ["replay_rate"]
    assert broken(replays(6, 94, ago=24)) == []


def test_the_tenants_of_an_operation_have_one_rate_and_operations_have_one_each() -> None:
    cells = {(0, "shop/a@t", "replayed"): 6, (0, "shop/a@u", "executed"): 94, (0, "shop/b", "executed"): 1_000}
    assert [one.scope for one in broken(cells)] == ["shop/a"]


def test_events_that_were_applied_count_as_calls() -> None:
    cells = {(0, "fleet/health", "replayed"): 5, (0, "fleet/health", "applied"): 95}
    assert broken(cells) == []
    assert names(broken({**cells, (0, "fleet/health", "replayed"): 6})) == ["replay_rate"]


@pytest.mark.parametrize(
    "scope", ["shop/schedule:nightly", f"shop/{ALERT}", "shop/email", "shop/email#2", "shop/greet"]
)
def test_operations_whose_replays_are_intended_are_skipped(scope: str) -> None:
    limits = parse_thresholds({"replays_expected": ["email", "shop/greet"]})
    cells = {(0, scope, "replayed"): 50, (0, scope, "executed"): 50}
    assert broken(cells, limits=limits) == []
    assert names(broken({(0, "other/greet", "replayed"): 50, (0, "other/greet", "executed"): 50}, limits=limits)) == [
        "replay_rate"
    ]


def fortnight(executed: int, replayed: int = 0, *, days: int = 14) -> dict[tuple[int, str, str], int]:
    return {
        (24 * days, SCOPE, "running"): 1,
        (100, SCOPE, "executed"): executed,
        (200, SCOPE, "replayed"): replayed,
    }


@pytest.mark.mission("B8")
def test_not_one_replay_in_two_weeks_of_a_thousand_executions_says_that_the_key_is_probably_wrong() -> None:
    assert broken(fortnight(999)) == []
    [found] = broken(fortnight(1_000))
    assert (found.rule, found.scope, found.figure) == ("no_replay", SCOPE, 1_000)
    assert "key is probably wrong" in found.todo


@pytest.mark.mission("B8")
def test_a_single_replay_in_two_weeks_is_enough() -> None:
    assert broken(fortnight(5_000, 1)) == []


@pytest.mark.mission("B8")
def test_nothing_is_reported_before_two_weeks_were_counted() -> None:
    cells = fortnight(5_000)
    del cells[24 * 14, SCOPE, "running"]
    assert broken({**cells, (24 * 14 - 1, SCOPE, "running"): 1}) == []
    assert names(broken({**cells, (24 * 14, SCOPE, "running"): 1})) == ["no_replay"]


@pytest.mark.mission("B8")
def test_executions_and_replays_before_the_two_weeks_do_not_count() -> None:
    before = 24 * 14
    assert broken({(before, SCOPE, "executed"): 5_000}) == []
    assert names(broken({**fortnight(1_000), (before, SCOPE, "replayed"): 7})) == ["no_replay"]


# ── stale events ──


def stale(number: int, a_day_before: int, ago: int = 0) -> dict[tuple[int, str, str], int]:
    return {(ago, SCOPE, "stale"): number, (ago + 12, SCOPE, "stale"): a_day_before}


@pytest.mark.mission("E3")
@pytest.mark.parametrize("ago", [0, 1])
def test_stale_events_are_a_spike_above_twenty_an_hour(ago: int) -> None:
    assert broken(stale(20, 0, ago)) == []
    [found] = broken(stale(21, 0, ago))
    assert (found.rule, found.scope, found.figure) == ("stale_spike", SCOPE, 21)


@pytest.mark.mission("E3")
def test_stale_events_are_a_spike_above_five_times_the_mean_hour_of_the_day_before() -> None:
    """240 in a day are 10 an hour."""
    assert broken(stale(50, 240)) == []
    [found] = broken(stale(51, 240))
    assert (found.figure, found.limit) == (51, 50)
    assert "10.0" in found.said


@pytest.mark.mission("E3")
def test_what_was_stale_more_than_a_day_before_does_not_raise_the_mean() -> None:
    cells = {(0, SCOPE, "stale"): 50, (24, SCOPE, "stale"): 240}
    assert broken(cells) == []
    assert names(broken({(0, SCOPE, "stale"): 50, (25, SCOPE, "stale"): 240})) == ["stale_spike"]


# ── thresholds ──


OTHERS: dict[str, tuple[dict[str, Any], Cells, dict[str, int]]] = {
    "claim_errors": ({"claim_errors": 11}, {(0, SCOPE, "claim_errors"): 11}, {}),
    "renewal_failures": ({"renewal-failures": 6}, {(0, SCOPE, "renewal_failures"): 6}, {}),
    "old_pending": ({"old_pending": 4}, {}, {SCOPE: 4}),
    "replay_rate": ({"replay_rate": 0.06}, replays(6, 94), {}),
    "replay_rate of few": ({"replay_rate_calls": 21}, replays(2, 18), {}),
    "no_replay": ({"no_replay_executions": 1_001}, fortnight(1_000), {}),
    "no_replay of days": ({"no_replay_days": 15}, fortnight(1_000), {}),
    "stale_spike": ({"stale": 21}, stale(21, 0), {}),
    "stale_spike by factor": ({"stale_factor": 5.5}, stale(51, 240), {}),
    "unprotected": ({"unprotected": 1}, {(0, SCOPE, "unprotected"): 1}, {}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_each_threshold_can_be_another(name: str) -> None:
    written, cells, pending = OTHERS[name]
    assert names(broken(cells, pending)) == [name.partition(" ")[0]]
    assert broken(cells, pending, parse_thresholds(written)) == []


def test_durations_are_written_as_everywhere() -> None:
    limits = parse_thresholds({"old_pending_age": "2h", "alert-window": "7d"})
    assert (limits.old_pending_age, limits.alert_window) == (2 * HOUR, 7 * 24 * HOUR)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"claim_error": 3}, "did you mean 'claim_errors'"),
        ({"claim_errors": "many"}, "claim_errors"),
        ({"claim_errors": -1}, "negative"),
        ({"replay_rate": [1]}, "replay_rate"),
        ({"old_pending_age": "half"}, "old_pending_age"),
        ({"replays_expected": "email"}, "replays_expected"),
        ({"no_replay_days": 29}, "30 days"),
        ({"no_replay_days": 0}, "no_replay_days is 0"),
        ({"alert_window": 0}, "alert_window is 0"),
        ({"replay_rate": 5}, "0.05 is 5 %"),
        ({"replay_rate": float("nan")}, "replay_rate"),
        ({"stale_factor": float("inf")}, "stale_factor must be a finite number"),
        ({"stale_factor": float("nan")}, "stale_factor must be a finite number"),
    ],
)
def test_a_threshold_that_cannot_be_is_refused_by_name(written: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse_thresholds(written, "onceward.toml [rules]")


def test_a_name_is_known_as_the_scopes_show_it() -> None:
    expected = parse_thresholds({"replays_expected": ["two\nlines"]})
    assert broken({}, {}, expected) == []
    shown = Scope("shop", "two\nlines").text
    cells = {(1, shown, "replayed"): 50, (1, shown, "executed"): 50}
    assert names(broken(cells)) == ["replay_rate"]
    assert broken(cells, {}, expected) == []


def test_every_rule_says_what_to_do_and_where_to_read_on() -> None:
    for rule in RULES:
        one = Broken(rule.name, "", 1, 0, "said", rule.todo)
        assert one.runbook == f"onceward runbook {rule.name.replace('_', '-')}"
        assert rule.todo in str(one)
