"""`onceward stats --since`, `onceward check` and `onceward rules`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from onceward import Once
from onceward.cli import charts
from onceward.cli.exit_codes import Exit
from onceward.cli.settings import VARIABLES
from onceward.errors import StoreUnavailable
from onceward.observe.monitoring_files import grafana_dashboard, prometheus_rules
from onceward.observe.rules import RULES
from onceward.observe.thresholds import Thresholds
from onceward.protocol.counters import COUNTER_NAMES, HOUR, CounterRow
from onceward.protocol.requests import Renewal
from onceward.runtime.threads import run
from onceward.stores.sqlite import SQLiteStore
from tests.cli.calls import as_json, call, finish, line, on_a_terminal, start

STORE = "sqlite:///onceward.db"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def plant(*counter_rows: tuple[int, dict[str, dict[str, int]]]) -> None:
    """Store counts as another process would, by how many hours ago."""
    hour = time.time_ns() // 1_000 // HOUR
    with Once(STORE) as once:
        once.read("any")  # opens the store
        store: Any = once.store
        made = [CounterRow(bytes([place]), hour - ago, 1, counts) for place, (ago, counts) in enumerate(counter_rows)]
        run(store.save_counts(made, timeout=5))


# ── stats ──


@pytest.mark.mission("B8")
def test_stats_since_adds_up_what_was_counted_with_the_replay_rate_and_each_hour() -> None:
    plant(
        (1, {"shop/charge": {"executed": 8, "replayed": 2}}),
        (3, {"shop/charge": {"executed": 10}, "shop/mail@acme": {"failed": 1}}),
        (30, {"shop/charge": {"executed": 1_000}}),
    )
    document = as_json("stats", "--since", "24h")
    charge = document["scopes"]["shop/charge"]
    assert (charge["executed"], charge["replayed"], charge["replay_rate"]) == (18, 2, 0.1)
    assert set(COUNTER_NAMES) < set(charge)
    assert [sum(counts.values()) for counts in charge["hours"].values()] == [10, 10]
    assert document["scopes"]["shop/mail@acme"]["failed"] == 1
    assert list(as_json("stats", "--since", "24h", "--scope", "shop/charge")["scopes"]) == ["shop/charge"]
    assert as_json("stats", "--since", "7d")["scopes"]["shop/charge"]["executed"] == 1_018


def test_stats_since_draws_a_chart_for_people() -> None:
    plant((0, {"shop/charge": {"executed": 4}}), (2, {"shop/charge": {"executed": 8, "stale": 0}}))
    shown = call("stats", "--since", "6h", "-o", "table").stdout
    head, charge, total, below = shown.splitlines()
    assert head.split() == ["SCOPE", "EXECUTED", "REPLAYED", "FAILED", "REPLAY", "RATE", "OVER", "TIME"]
    assert charge.split()[:5] == ["shop/charge", "12", "0", "0", "0.0%"]
    assert charge.endswith("█ ▄")
    assert total.split()[0] == "all"
    assert "6 h, 1 h per bar" in below


def test_commands_are_counted_by_default(folder: Path) -> None:
    for command, code in ((["true"], 0), (["true"], 0), (["false"], 1)):
        assert finish(start(folder, "run", "--key", command[0], "--", *command))[0] == code
    counted = as_json("stats", "--since", "1h")["scopes"]["default/command"]
    assert {name: number for name, number in counted.items() if name in COUNTER_NAMES and number} == {
        "executed": 1, "replayed": 1, "failed": 1,
    }  # fmt: skip


def test_stats_on_a_terminal_fit_into_it(folder: Path) -> None:
    plant((0, {f"a-rather-long-application/a-rather-long-operation-{number}": {"executed": 4} for number in range(3)}))
    code, seen = on_a_terminal(folder, "stats", "--since", "24h", COLUMNS="80")
    assert code == 0
    lines = seen.decode().splitlines()
    assert lines[1].endswith("█")
    assert max(len(line) for line in lines[1:]) <= 80


def test_stats_say_where_nothing_was_counted() -> None:
    with Once(STORE) as once:
        once.run("any", int)
    result = call("stats", "--since", "24h", "-o", "table")
    assert result.exit_code == 0
    assert "counters=True" in line(result)
    assert as_json("stats", "--since", "24h")["scopes"] == {}


def test_stats_without_since_count_records_as_before() -> None:
    with Once(STORE) as once:
        once.run("any", int)
    plant((0, {"shop/charge": {"executed": 4}}))
    assert as_json("stats")["default/shared"]["COMPLETED"] == 1
    assert as_json("stats", "--scope", "shop/none") == {}


@pytest.mark.parametrize(
    ("series", "drawn"),
    [
        ([0, 0, 0], ""),
        ([1, 2, 4, 8], "▁▂▄█"),
        ([0, 5], " █"),
        ([1, 1_000_000], "▁█"),
        ([1] * 96, "█" * 48),
        ([1] * 49, "▄" + "█" * 24),
        ([], ""),
    ],
)
def test_a_chart_has_a_bar_for_each_hour_or_for_a_few(series: list[int], drawn: str) -> None:
    assert charts.chart(series) == drawn
    assert len(drawn) <= charts.MAX_BARS
    assert len(charts.chart(series, 10)) <= 10


# ── check ──


@pytest.mark.mission("A8")
def test_check_prints_each_broken_rule_with_its_figure_and_what_to_do_and_exits_1() -> None:
    plant((0, {"shop/charge": {"claim_errors": 11, "renewal_failures": 5, "unprotected": 2}}))
    result = call("check", "-o", "table")
    assert result.exit_code == Exit.ATTENTION
    rule, figure, todo, runbook, other, *_, last = result.stdout.splitlines()
    assert (rule, other) == ("claim_errors", "unprotected")
    assert figure.strip().startswith("11 claims")
    assert todo.endswith("shorten the work.")
    assert runbook.strip() == "More: onceward runbook claim-errors"
    assert last == f"2 of {len(RULES)} rules are broken."
    found = json.loads(call("check").stdout)["broken"]
    assert [(rule["rule"], rule["figure"], rule["limit"]) for rule in found] == [
        ("claim_errors", 11, 10),
        ("unprotected", 2, 0),
    ]
    assert found[0]["runbook"] == "onceward runbook claim-errors"


@pytest.mark.mission("A8")
def test_the_command_that_old_pending_suggests_shows_hanging_workers_that_keep_renewing(folder: Path) -> None:
    (folder / "onceward.toml").write_text("[rules]\nold_pending = 0\nold_pending_age = '5ms'\n")
    with Once(STORE) as once, once.claim("hangs", name="charge"):
        time.sleep(0.02)
        for hold in once.heartbeat.held():
            renewal = Renewal(hold.record.id, hold.record.token, hold.nonce, hold.lease)
            run(once.store.renew([renewal], timeout=5))
        [broken] = json.loads(call("check").stdout)["broken"]
        assert broken["rule"] == "old_pending"
        assert "onceward ls --state PENDING --claimed-before 5ms" in broken["todo"]
        assert [one["key"] for one in as_json("ls", "--state", "PENDING", "--claimed-before", "5ms")] == ["hangs"]
        assert as_json("ls", "--state", "PENDING", "--older-than", "1h") == []
        assert as_json("ls", "--state", "PENDING", "--claimed-before", "1h") == []


def test_check_says_for_how_many_scopes_all_rules_hold_and_exits_0() -> None:
    plant((0, {"shop/charge": {"claim_errors": 10}, "shop/mail@acme": {"executed": 1}, "shop/mail": {"executed": 1}}))
    result = call("check", "-o", "table")
    assert (result.exit_code, result.stdout) == (0, f"All {len(RULES)} rules hold for 2 scopes.\n")
    said = as_json("check")
    assert said["broken"] == []
    assert (len(said["checked"]["rules"]), said["checked"]["scopes"]) == (len(RULES), ["shop/charge", "shop/mail"])
    assert said["not_checked"] == {"rules": [], "scopes": [], "why": "", "todo": ""}


@pytest.mark.mission("A8")
def test_scopes_whose_programs_do_not_count_are_reported_and_never_said_to_hold() -> None:
    with Once(STORE, app="shop") as once, Once(STORE, app="shop", tenant="acme") as of_acme:
        for client, name in ((once, "charge"), (of_acme, "charge"), (once, "mail"), (of_acme, "pdf")):
            with client.claim("k", name=name):
                pass
    plant((0, {"shop/charge": {"claim_errors": 10}}))
    result = call("check", "-o", "table")
    assert result.exit_code == 0, "an unchecked scope is not a failure"
    holds, left_out, todo = result.stdout.splitlines()
    assert holds == f"All {len(RULES)} rules hold for 1 scope."
    assert left_out == (
        "2 scopes had no counters in the last 30 days, so only parked, failed_final, stuck_schedules and old_pending "
        "were checked there (shop/mail, shop/pdf)."
    )
    assert "counters=True" in todo
    said = as_json("check")
    assert said["checked"]["scopes"] == ["shop/charge"]
    assert said["not_checked"]["scopes"] == ["shop/mail", "shop/pdf"]
    assert "old_pending" not in said["not_checked"]["rules"]
    assert len(said["not_checked"]["rules"]) == len(RULES) - 4
    assert "counters=True" in said["not_checked"]["todo"]


def test_unchecked_scopes_are_reported_next_to_a_broken_rule_too() -> None:
    with Once(STORE, app="shop") as once:
        once.run("any", int)
    plant((0, {f"shop/{name}": {"executed": 50, "replayed": 50} for name in "ab"}))
    result = call("check", "-o", "table")
    assert result.exit_code == Exit.ATTENTION
    broken, left_out, _ = result.stdout.splitlines()[-3:]
    assert broken == f"1 of {len(RULES)} rules is broken."
    assert left_out.endswith("(shop/shared).")


def test_locks_and_alerts_need_no_counters_to_be_checked(folder: Path) -> None:
    with Once(STORE) as once, once.lock("sync", lease="5s"):
        pass
    plant((0, {"shop/charge": {"claim_errors": 11}}))
    assert call("check", "--alert", pager(folder)).exit_code == Exit.ATTENTION
    assert json.loads(call("check").stdout)["not_checked"]["scopes"] == []


def test_many_scopes_that_do_not_count_make_no_endless_line() -> None:
    with Once(STORE, app="shop") as once:
        for number in range(12):
            with once.claim("k", name=f"work{number:02}"):
                pass
    _, left_out, _ = call("check", "-o", "table").stdout.splitlines()
    assert "work09 and 2 more)" in left_out
    assert len(json.loads(call("check").stdout)["not_checked"]["scopes"]) == 12


def test_a_store_with_too_many_records_to_look_through_is_still_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(*_: object, **__: object) -> None:
        raise StoreUnavailable("sqlite:///onceward.db took too long")

    plant((0, {"shop/charge": {"claim_errors": 11}}))
    monkeypatch.setattr(SQLiteStore, "counts", slow)
    result = call("check", "-o", "table")
    assert result.exit_code == Exit.ATTENTION
    assert result.stdout.splitlines()[-1].endswith("could not be listed: sqlite:///onceward.db took too long")
    assert "took too long" in json.loads(call("check").stdout)["not_checked"]["why"]


def test_check_says_if_no_program_counts() -> None:
    with Once(STORE) as once:
        once.run("any", int)
    result = call("check")
    assert result.exit_code == 0
    assert "counters=True" in line(result)
    assert json.loads(result.stdout)["checked"] == {
        "rules": ["parked", "failed_final", "stuck_schedules", "old_pending"],
        "scopes": [],
    }
    summary, where, todo = call("check", "-o", "table").stdout.splitlines()
    assert summary == (
        f"No counters found: of {len(RULES)} rules only parked, failed_final, stuck_schedules and old_pending "
        "could be checked, and they hold."
    )
    assert "default/shared" in where
    assert "counters=True" in todo
    assert "Workers write counters every minute and when they close the client" in todo


def test_an_empty_store_is_not_said_to_be_in_order() -> None:
    Once(STORE).read("anything")
    output = call("check", "-o", "table").stdout
    assert "hold for" not in output
    assert json.loads(call("check").stdout)["not_checked"]["scopes"] == []


def test_thresholds_come_from_the_file(folder: Path) -> None:
    plant((0, {"shop/charge": {"claim_errors": 11}}))
    (folder / "onceward.toml").write_text("[rules]\nclaim_errors = 11\n")
    assert as_json("check")["broken"] == []
    (folder / "onceward.toml").unlink()
    (folder / "pyproject.toml").write_text("[tool.onceward.rules]\nclaim_errors = 11\n")
    assert as_json("check")["broken"] == []
    assert as_json("rules")["claim_errors"] == 11


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[rules]\nclaim_error = 3\n", "onceward.toml [rules]: there is no threshold 'claim_error'"),
        ("[rules]\nclaim_errors = 'three'\n", "onceward.toml [rules]"),
        ("rules = 3\n", "rules is not a table"),
        ("[rulez]\n", "did you mean 'rules'"),
    ],
)
def test_a_threshold_that_cannot_be_is_refused(folder: Path, written: str, said: str) -> None:
    plant((0, {"shop/charge": {"claim_errors": 11}}))
    (folder / "onceward.toml").write_text(written)
    result = call("check")
    assert result.exit_code == Exit.USAGE
    assert said in line(result)


# ── alerts ──


def pager(folder: Path, *, code: int = 0) -> str:
    """Return a command that writes its input to a file."""
    script = folder / "pager.py"
    script.write_text(
        "import os, sys\n"
        f"open({str(folder / 'pages')!r}, 'a').write(os.environ['ONCEWARD_RULE'] + ': ' + sys.stdin.readline())\n"
        f"sys.exit({code})\n"
    )
    return f"{sys.executable} {script}"


def pages(folder: Path) -> list[str]:
    file = folder / "pages"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.mission("C10")
def test_of_checks_at_the_same_time_and_later_one_sends_the_alert(folder: Path) -> None:
    plant((0, {"shop/charge": {"claim_errors": 11}}))
    command = pager(folder)
    checks = [start(folder, "check", "--alert", command) for _ in range(3)]
    for check in checks:
        code, _, said = finish(check)
        assert (code, said) == (1, b"")
    assert call("check", "--alert", command).exit_code == 1
    [page] = pages(folder)
    assert page.startswith("claim_errors: claim_errors: 11 claims without an answer")


@pytest.mark.mission("C10")
def test_an_alert_that_fails_is_reported_and_retried(folder: Path) -> None:
    plant((0, {"shop/charge": {"claim_errors": 11}}))
    result = call("check", "--alert", pager(folder, code=3))
    assert f"claim_errors was not sent ({sys.executable} exited with code 3); the next check retries it" in line(result)
    assert call("check", "--alert", pager(folder)).exit_code == 1
    assert call("check", "--alert", pager(folder)).exit_code == 1
    assert len(pages(folder)) == 2


@pytest.mark.finding("N23")
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("/nowhere/pager --token hunter2", "/nowhere/pager cannot be run: No such file or directory"),
        ("/ hunter2", "/ cannot be run: Permission denied"),
        ("TOKEN=hunter2 pager", "the command of --alert cannot be run: No such file or directory"),
        ("https://hooks.example.com/hunter2", "the command of --alert cannot be run: No such file or directory"),
        ("sh -c 'kill -9 $$' hunter2", "sh was killed by signal 9"),
        ("sh -c 'exec sleep 60' hunter2", "sh did not end within 0.2 s"),
        ("false hunter2", "false exited with code 1"),
    ],
)
def test_the_message_about_an_alert_names_the_program_that_failed_but_not_its_arguments(
    folder: Path, command: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sleep" in command:
        monkeypatch.setattr("onceward.cli.check.ALERT_TIMEOUT", 0.2)
    plant((0, {"shop/charge": {"claim_errors": 11}}))
    result = call("check", "--alert", command)
    assert f"claim_errors was not sent ({reason}); the next check retries it" in line(result)
    assert "hunter2" not in result.output


def test_what_the_alert_command_prints_does_not_mix_with_what_check_prints(folder: Path) -> None:
    plant((0, {"shop/charge": {"claim_errors": 11}}))
    code, printed, said = finish(start(folder, "check", "-o", "json", "--alert", "echo sent"))
    assert (code, said) == (1, b"sent\n")
    assert [one["rule"] for one in json.loads(printed)["broken"]] == ["claim_errors"]


def test_without_a_broken_rule_no_alert_is_sent(folder: Path) -> None:
    plant((0, {"shop/charge": {"claim_errors": 10}}))
    assert call("check", "--alert", pager(folder)).exit_code == 0
    assert pages(folder) == []


@pytest.mark.parametrize("command", ["", "'unclosed"])
def test_an_alert_that_cannot_be_run_is_refused(command: str) -> None:
    plant((0, {"shop/charge": {"claim_errors": 11}}))
    result = call("check", "--alert", command)
    assert result.exit_code == Exit.USAGE


# ── rules ──


def test_rules_shows_the_thresholds_the_alert_file_and_the_dashboard(folder: Path) -> None:
    assert as_json("rules")["old_pending_age"] == "30m"
    assert "claim_errors" in call("rules", "-o", "table").stdout
    assert call("rules", "--prometheus").stdout == prometheus_rules(Thresholds())
    assert json.loads(call("rules", "--grafana").stdout) == json.loads(grafana_dashboard())
    (folder / "onceward.toml").write_text("[rules]\nclaim_errors = 77\n")
    assert "> 77" in call("rules", "--prometheus").stdout
