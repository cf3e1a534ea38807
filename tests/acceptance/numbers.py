"""The thresholds and durations of the five documents, and the test that fails if one is changed by one.

`python -m tests.acceptance.numbers` changes each number in a copy of this repository, runs its test there, and reports
the numbers whose test still passes. `python -m tests.acceptance.numbers 300 0.9` does so for some of them.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
COPIED: Final = ("src", "examples", "tests", "docs", "pyproject.toml", "README.md", "CHANGELOG.md")


class Number(NamedTuple):
    """A number of a document: where it is in this repository, how it is changed, and the test that notices."""

    what: str
    file: str
    now: str
    changed: str
    test: str


RULES: Final = "src/onceward/observe/thresholds.py"
POLICY: Final = "src/onceward/protocol/policy.py"
OUTREACH: Final = "examples/outreach/onceward.toml"
UNIT_RULES: Final = "tests/unit/test_rules.py"
OWN: Final = "tests/acceptance/test_numbers.py"
PROBLEMS: Final = f"{UNIT_RULES}::test_problems_of_an_hour_are_reported_from_one_above_the_limit"

NUMBERS: Final = (
    Number(
        "A 600 s lease", "examples/documents/__main__.py", 'LEASE = "600s"', 'LEASE = "601s"',
        f"{OWN}::test_a_document_is_locked_for_600_seconds_and_a_message_is_known_for_7_days",
    ),
    Number(
        "A 120 s heartbeat", "examples/documents/__main__.py", 'HEARTBEAT = "120s"', 'HEARTBEAT = "119s"',
        "tests/documents/test_heartbeats_rules_and_log.py::test_a_document_is_renewed_120_seconds_after_it_was_claimed",
    ),
    Number(
        "A a heartbeat every fifth of the lease by default", POLICY, "RENEWALS_PER_LEASE = 5",
        "RENEWALS_PER_LEASE = 6",
        "tests/documents/test_heartbeats_rules_and_log.py::"
        "test_a_model_may_take_hours_because_the_lease_of_600_s_is_extended_every_120_s",
    ),
    Number("A 10 failed claims an hour", RULES, "claim_errors: int = 10", "claim_errors: int = 11", PROBLEMS),
    Number("A 5 failed heartbeats an hour", RULES, "renewal_failures: int = 5", "renewal_failures: int = 6", PROBLEMS),
    Number(
        "A 3 stale locks", RULES, "old_pending: int = 3", "old_pending: int = 4",
        f"{UNIT_RULES}::test_records_that_are_pending_for_long_are_reported_from_the_fourth_on",
    ),
    Number(
        "A 30 min until a lock is stale", RULES, "old_pending_age: int = HOUR // 2",
        "old_pending_age: int = 31 * HOUR // 60",
        "tests/documents/test_heartbeats_rules_and_log.py::"
        "test_the_rules_report_claims_without_an_answer_failed_heartbeats_and_stale_locks",
    ),
    Number(
        "B 86,400 s window", POLICY, 'DEFAULT_WINDOW: Final = lasting("24h")', 'DEFAULT_WINDOW: Final = lasting("25h")',
        "tests/integration/test_submissions_example.py::test_a_submission_is_known_for_a_day",
    ),
    Number(
        "B 5 % replays", RULES, "replay_rate: float = 0.05", "replay_rate: float = 0.06",
        f"{UNIT_RULES}::test_a_replay_rate_of_five_percent_is_fine_and_above_it_is_reported",
    ),
    Number(
        "B weeks without a replay", RULES, "no_replay_days: int = 14", "no_replay_days: int = 15",
        f"{UNIT_RULES}::test_not_one_replay_in_two_weeks_of_a_thousand_executions_says_that_the_key_is_probably_wrong",
    ),
    Number(
        "C 24 h between mails", OUTREACH, 'key = "email:{prospect_id}"\nwindow = "24h"',
        'key = "email:{prospect_id}"\nwindow = "25h"',
        "tests/integration/test_outreach_mails.py::"
        "test_a_prospect_gets_one_mail_a_day_whatever_its_text_also_after_a_restart",
    ),
    Number(
        "C 300 s lock", OUTREACH, 'lease = "300s"', 'lease = "301s"',
        f"{OWN}::test_a_mail_that_is_being_sent_holds_its_lock_for_300_seconds",
    ),
    *(
        Number(
            f"C cron {what}", "examples/outreach/app.py", 'PATTERN: Final = "*/5 8-18 * * 1-6"',
            f'PATTERN: Final = "{pattern}"',
            "tests/integration/test_outreach_cron.py::"
            "test_a_run_of_cron_happens_once_among_all_machines_and_a_restart_sends_nothing_again",
        )
        for what, pattern in {
            "every 5 minutes": "*/6 8-18 * * 1-6",
            "from 8 o'clock on": "*/5 9-18 * * 1-6",
            "until 18 o'clock": "*/5 8-17 * * 1-6",
            "also on Saturdays": "*/5 8-18 * * 1-5",
            "but not on Sundays": "*/5 8-18 * * 0-6",
        }.items()
    ),
    Number(
        "C 600 s of a run that crashed", "examples/outreach/app.py", 'CRON_LEASE = "600s"', 'CRON_LEASE = "601s"',
        "tests/integration/test_outreach_cron.py::"
        "test_a_run_whose_worker_was_killed_after_a_mail_is_free_after_600_seconds_and_does_not_send_that_mail_again",
    ),
    Number(
        "C 0.9 confidence", "examples/outreach/app.py", "CONFIDENCE: Final = 0.9", "CONFIDENCE: Final = 0.91",
        f"{OWN}::test_a_similar_prospect_is_updated_only_above_a_confidence_of_90_percent",
    ),
    Number(
        "C above 0.9, not from 0.9 on", "examples/outreach/app.py", "math.nextafter(CONFIDENCE, 1)",
        "math.nextafter(CONFIDENCE, 0)",
        f"{OWN}::test_a_similar_prospect_is_updated_only_above_a_confidence_of_90_percent",
    ),
    Number(
        "C 24 h between enrichments", OUTREACH, 'key = "enrich:{prospect_id}:{type}"\nwindow = "24h"',
        'key = "enrich:{prospect_id}:{type}"\nwindow = "25h"',
        "tests/integration/test_outreach_prospects.py::"
        "test_an_enrichment_is_tried_once_a_day_unless_the_data_is_there",
    ),
    Number(
        "C replies are known forever", OUTREACH, 'key = "reply:{message_id}"\nwindow = "forever"',
        'key = "reply:{message_id}"\nwindow = "24h"',
        "tests/integration/test_outreach_example.py::"
        "test_its_windows_are_declared_in_one_table_that_the_command_lists",
    ),
    Number(
        "D sources", "examples/learning/users.py", '"sources": list(person.sources)', '"sources": ["xapi"]',
        "tests/learning/test_document.py::test_case_2_as_written",
    ),
    Number(
        "E 7 days", "examples/fleet/app.py", 'KEEP = "7d"', 'KEEP = "8d"',
        f"{OWN}::test_a_document_is_locked_for_600_seconds_and_a_message_is_known_for_7_days",
    ),
    Number(
        "E 52 characters", "examples/fleet/events.py", '.decode().rstrip("=")', '.decode().rstrip("=")[:51]',
        "tests/fleet/test_latest.py::test_an_event_without_an_id_is_known_by_what_identifies_it",
    ),
)  # fmt: skip


def functions_of(path: Path) -> set[str]:
    """Return the names of the functions in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@cache
def passes(test: str, changed: Number | None = None) -> bool:
    """Return whether the test passes in a copy of this repository, as it is or with one number changed."""
    with tempfile.TemporaryDirectory(prefix="onceward-numbers-") as folder:
        copy = Path(folder)
        for name in COPIED:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, copy / name)
        if changed is not None:
            file = copy / changed.file
            file.write_text(file.read_text(encoding="utf-8").replace(changed.now, changed.changed), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
        environment = {**os.environ, "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}"}
        return subprocess.run(command, cwd=copy, env=environment, capture_output=True, check=False).returncode == 0


def main(wanted: list[str]) -> int:
    wrong = 0
    for number in NUMBERS:
        if not wanted or any(word in number.what for word in wanted):
            verdict = "pinned"
            if passes(number.test, number):
                verdict = "NOT PINNED"
            elif not passes(number.test):
                verdict = "BROKEN"  # the test fails anyway, so it shows nothing
            wrong += verdict != "pinned"
            print(f"{verdict:<12}{number.what}", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
