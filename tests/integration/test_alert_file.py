"""The alert file, checked by promtool: it is valid, and raises each alert above its threshold and not below."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from onceward.observe.gauges import GAUGES
from onceward.observe.monitoring_files import grafana_dashboard, prometheus_rules
from onceward.observe.rules import RULES
from onceward.observe.thresholds import Thresholds, parse_thresholds
from onceward.protocol.counters import COUNTER_NAMES
from onceward.protocol.operation_names import ALERT
from tests.integration.prometheus_alerts import promtool, raised

SCOPE = {"scope": "shop/charge"}
NO_ALERTS: list[dict[str, str]] = []


def counter(name: str, scope: str = "shop/charge", **labels: str) -> str:
    more = "".join(f', {label}="{value}"' for label, value in labels.items())
    return f'onceward_{name}_total{{scope="{scope}"{more}}}'


def rising(to: int, steps: int) -> str:
    """Return a series of so many steps that jumps from 0 to this value in the middle."""
    half = steps // 2
    return f"0x{half} {to}x{steps - half}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "alerts.yml").write_text(prometheus_rules(Thresholds()))
    return tmp_path


def test_the_alert_file_is_sound_and_has_every_rule(folder: Path) -> None:
    assert f"{len(RULES)} rules found" in promtool("check", "rules", "alerts.yml", folder=folder)
    text = (folder / "alerts.yml").read_text()
    for rule in RULES:
        assert f"rule: {rule.name}}}" in text
    assert "@" not in re.sub(r"ops@\S+", "", text), "an unfilled placeholder"


def test_other_thresholds_and_names_with_odd_characters_still_make_a_sound_file(tmp_path: Path) -> None:
    odd = parse_thresholds({
        "claim_errors": 7, "replay_rate": 0.125, "no_replay_days": 7, "old_pending_age": "2h",
        "replays_expected": ["e.mail", "shop/greet (new)", 'say "hi"', "back\\slash", "two\nlines", "\x1b[31m"],
    })  # fmt: skip
    text = prometheus_rules(odd)
    (tmp_path / "alerts.yml").write_text(text)
    promtool("check", "rules", "alerts.yml", folder=tmp_path)
    assert "[1h])) > 7\n" in text
    assert "> 0.125" in text
    assert "[7d]" in text
    assert "2h" in text


@pytest.mark.finding("N23")
@pytest.mark.mission("A8", "A9", "B8", "E3")
def test_each_alert_is_raised_above_its_threshold_and_not_at_it(folder: Path) -> None:
    hour, day = ("1m", "60m"), ("10m", "1d")
    cases: list[Any] = []

    def case(times: tuple[str, str], alert: str, values: dict[str, str], labels: list[dict[str, str]]) -> None:
        cases.append((times[0], values, times[1], alert, labels))

    for alert, name, limit in (("ClaimErrors", "claim_errors", 10), ("RenewalFailures", "renewal_failures", 5)):
        other = {counter(name, "shop/other"): rising(1, 60)}
        case(hour, f"Onceward{alert}", {counter(name): rising(limit, 60)}, NO_ALERTS)
        case(hour, f"Onceward{alert}", {counter(name): rising(limit, 60), **other}, [{}])
    pair = {f'onceward_old_pending{{scope="a/b", instance="{number}"}}': "3x60" for number in (1, 2)}
    case(hour, "OncewardOldPending", pair, NO_ALERTS)
    case(hour, "OncewardOldPending", {'onceward_old_pending{scope="a/b"}': "3x60",
                                      'onceward_old_pending{scope="a/c"}': "1x60"}, [{}])  # fmt: skip
    for replayed, executed, labels in ((5, 95, NO_ALERTS), (6, 94, [SCOPE]), (2, 17, NO_ALERTS), (2, 18, [SCOPE])):
        values = {counter("replayed"): rising(replayed, 144), counter("executed"): rising(executed, 144),
                  counter("applied"): "0x144"}  # fmt: skip
        case(day, "OncewardReplayRate", values, labels)
    for scope in ("shop/schedule:nightly", f"shop/{ALERT}"):
        values = {counter("replayed", scope): rising(50, 144), counter("executed", scope): rising(50, 144),
                  counter("applied", scope): "0x144"}  # fmt: skip
        case(day, "OncewardReplayRate", values, NO_ALERTS)
    by_scope: list[dict[str, str]] = [{"scope": "a/b"}]
    for alert, gauge, labels in (
        ("Parked", "parked_records", by_scope),
        ("FailedFinal", "final_failures", by_scope),
        ("StuckSchedules", "stuck_schedules", [dict[str, str]()]),
    ):
        none = {f'onceward_{gauge}{{scope=""}}': "0x60"}
        case(hour, f"Onceward{alert}", none, NO_ALERTS)
        case(hour, f"Onceward{alert}", {**none, f'onceward_{gauge}{{scope="a/b"}}': "1x60"}, labels)
    for alert, name in (("Unknown", "unknown"), ("DeadLetters", "dead_lettered")):
        case(day, f"Onceward{alert}", {counter(name): "0x144"}, NO_ALERTS)
        case(day, f"Onceward{alert}", {counter(name): rising(1, 144)}, [SCOPE])
    case(day, "OncewardUnprotected", {counter("unprotected"): "0x144"}, NO_ALERTS)
    case(day, "OncewardUnprotected", {counter("unprotected"): rising(1, 144)}, [{}])
    raised(folder, cases)


@pytest.mark.mission("A8", "A9", "E3")
def test_what_a_process_counted_before_it_was_seen_for_the_first_time_is_an_alert_too(folder: Path) -> None:
    """increase() ignores the first sample of a series, because there is no earlier one to compare it with."""
    hour, day = ("1m", "120m"), ("10m", "2d")
    new, newer = "_x90 {}x30", "_x216 {}x72"
    down = counter("claim_errors", instance="new"), counter("claim_errors", instance="old")
    cases: list[Any] = [
        (hour[0], {counter("claim_errors"): new.format(10)}, hour[1], "OncewardClaimErrors", NO_ALERTS),
        (hour[0], {counter("claim_errors"): new.format(11)}, hour[1], "OncewardClaimErrors", [{}]),
        (hour[0], {down[0]: new.format(6), down[1]: "100x90 105x30"}, hour[1], "OncewardClaimErrors", [{}]),
        (hour[0], {down[0]: new.format(5), down[1]: "100x90 105x30"}, hour[1], "OncewardClaimErrors", NO_ALERTS),
        (hour[0], {counter("claim_errors"): "99x40 _x30 99x50"}, hour[1], "OncewardClaimErrors", NO_ALERTS),
        (hour[0], {counter("renewal_failures"): new.format(6)}, hour[1], "OncewardRenewalFailures", [{}]),
        (hour[0], {counter("stale"): new.format(20)}, hour[1], "OncewardStaleSpike", NO_ALERTS),
        (hour[0], {counter("stale"): new.format(21)}, hour[1], "OncewardStaleSpike", [SCOPE]),
        (day[0], {counter("unprotected"): newer.format(1)}, day[1], "OncewardUnprotected", [{}]),
        (day[0], {counter("unprotected"): "_x216 1x9 _x63"}, day[1], "OncewardUnprotected", [{}]),
        (day[0], {counter("unprotected"): "1x288"}, day[1], "OncewardUnprotected", NO_ALERTS),
    ]
    raised(folder, cases)


@pytest.mark.mission("B8")
def test_no_replay_in_two_weeks_is_an_alert_if_there_was_enough_to_replay(folder: Path) -> None:
    fortnight = 14 * 24
    cases: list[Any] = []
    for executed, replayed, steps, labels in (
        (999, 0, fortnight, NO_ALERTS),
        (1_000, 0, fortnight, [SCOPE]),
        (5_000, 1, fortnight, NO_ALERTS),
        (5_000, 0, fortnight - 24, NO_ALERTS),
    ):
        values = {counter("executed"): rising(executed, steps), counter("replayed"): rising(replayed, steps)}
        cases.append(("1h", values, f"{steps}h", "OncewardNoReplay", labels))
    raised(folder, cases, every="1d")


@pytest.mark.mission("E3")
def test_a_spike_of_stale_events_is_an_alert_above_twenty_and_above_five_times_the_mean(folder: Path) -> None:
    """240 events a day are 10 an hour: the background before the last hour, then the spike."""
    cases: list[Any] = []
    for before, spike, labels in ((0, 20, NO_ALERTS), (0, 21, [SCOPE]), (240, 50, NO_ALERTS), (240, 51, [SCOPE])):
        quiet = f"0x72 {before}x72" if before else "0x145"
        values = {counter("stale"): f"{quiet} {before}x2 {before + spike}x4"}
        cases.append(("10m", values, "1500m", "OncewardStaleSpike", labels))
    raised(folder, cases)


def test_the_dashboard_asks_only_for_what_is_exported_and_in_sound_expressions(tmp_path: Path) -> None:
    dashboard = json.loads(grafana_dashboard())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    exported = {f"onceward_{name}_total" for name in (*COUNTER_NAMES, "processed")} | {
        f"onceward_{name}" for name, _ in GAUGES.values()
    }
    asked = set(re.findall(r"onceward_\w+", " ".join(expressions)))
    assert asked <= exported
    assert len(asked) >= 12
    rules = [
        {"record": f"panel:{position}", "expr": expr.replace("$scope", ".*")}
        for position, expr in enumerate(expressions)
    ]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", "panels.yml", folder=tmp_path)
