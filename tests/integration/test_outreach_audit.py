"""The audit of examples/outreach: for each of the sixteen lines, a database that violates it makes it fail."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from examples.outreach.__main__ import main, morning
from examples.outreach.audit import LINES, audit, resent
from examples.outreach.evidence import AuditData, Mail
from tests.servers.postgres import Postgres, new_database

UNGUARDED = "ALTER TABLE {0} RENAME TO old; CREATE TABLE {0} AS SELECT * FROM old; DROP TABLE old;"
"""The same rows, without any constraint."""

ANOTHER = "INSERT INTO enrichments SELECT prospect_id, type, token - 1, {}, {}, {} FROM enrichments LIMIT 1"
EARLIER, LATER = "'2020-01-01T00:00:00+00:00'", "'2030-01-01T00:00:00+00:00'"

BUMP = """
CREATE TRIGGER bump BEFORE INSERT ON prospects BEGIN UPDATE prospects SET updated_at = 'now' WHERE id = new.id; END
"""

BROKEN = {
    1: ("outreach", "INSERT INTO emails SELECT 'x', prospect_id, direction, '<x>', sent_at FROM emails LIMIT 1", {1}),
    2: (
        "outreach",
        UNGUARDED.format("emails") + "CREATE UNIQUE INDEX again ON emails (message_id) WHERE message_id IS NOT NULL",
        {2, 15},
    ),
    3: ("outside", "INSERT INTO mails SELECT * FROM mails LIMIT 1", {3}),
    4: ("outreach", ANOTHER.format(EARLIER, LATER, "NULL"), {4}),
    5: ("outreach", ANOTHER.format(EARLIER, "started_at", "found"), {5}),
    6: ("outreach", "UPDATE prospects SET replies = replies + 1", {6}),
    7: ("outreach", "DROP INDEX idx_emails_message_id", {7, 13}),
    8: ("outreach", UNGUARDED.format("runs") + "INSERT INTO runs SELECT * FROM runs", {8, 9, 12, 15}),
    9: ("outreach", "DROP INDEX idx_prospects_email", {9}),
    10: ("outreach", "DELETE FROM onceward_records WHERE key = 'email:p1'", {10}),
    11: ("outreach", "UPDATE enrichments SET token = 0 WHERE prospect_id = 'p1'", {11}),
    12: ("outreach", "DELETE FROM onceward_records WHERE scope LIKE 'outreach/schedule:cron:%'", {12}),
    13: ("outreach", "UPDATE emails SET message_id = NULL WHERE direction = 'outbound'", {13}),
    14: (
        "outreach",
        "INSERT INTO prospects (id, email, updated_at) SELECT 'x', upper(email), '' FROM prospects LIMIT 1",
        {14},
    ),
    15: (
        "outreach",
        BUMP,
        {15},
    ),
    16: ("outside", "INSERT INTO alerts SELECT 'another key', what, 1 FROM alerts LIMIT 1", {16}),
}
"""For each line: which file is changed, how, and the lines that fail."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("morning")
    morning(folder, f"sqlite:///{folder}/outreach.db", lambda *_: None)
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    shutil.copytree(good, tmp_path / "copy")
    return tmp_path / "copy"


def failing(folder: Path) -> set[int]:
    found = audit(AuditData(f"sqlite:///{folder}/outreach.db", folder / "outside.db"))
    return {number for number, one in enumerate(found, 1) if one.wrong}


@pytest.mark.mission("C10")
def test_the_audit_has_the_lines_of_the_document_and_all_pass_after_a_morning(good: Path) -> None:
    assert [
        len([one for one in LINES if one.checklist == name]) for name in ("What to Verify", "Verification Checklist")
    ] == [9, 7]
    assert len({one.text for one in LINES}) == 16
    assert failing(good) == set()


@pytest.mark.mission("C10")
@pytest.mark.parametrize("number", BROKEN)
def test_each_line_of_the_audit_fails_on_a_database_that_violates_it(number: int, folder: Path) -> None:
    file, statement, seen_by = BROKEN[number]
    with closing(sqlite3.connect(folder / f"{file}.db")) as database, database:
        database.executescript(statement)
    assert number in seen_by
    assert failing(folder) == seen_by


@pytest.mark.mission("C10")
def test_an_enrichment_without_a_claim_is_reported_unless_its_claim_may_be_purged(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "outreach.db")) as database, database:
        database.execute("DELETE FROM onceward_records WHERE key = 'enrich:p2:website'")
    assert failing(folder) == {11}
    with closing(sqlite3.connect(folder / "outreach.db")) as database, database:
        database.execute(f"UPDATE enrichments SET started_at = {EARLIER} WHERE prospect_id = 'p2'")
    assert failing(folder) == set()


@pytest.mark.mission("C10")
def test_the_command_prints_each_line_and_fails_if_one_does(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(folder)]) == 0
    assert capsys.readouterr().out.count("✓") == 16
    with closing(sqlite3.connect(folder / "outreach.db")) as database, database:
        database.execute("UPDATE prospects SET replies = 7 WHERE id = 'p1'")
    assert main(["audit", str(folder)]) == 1
    out = capsys.readouterr().out
    assert re.search(r"✗  6  Same reply not processed twice\n +p1 has 1 replies, 7 were processed", out)


def test_without_a_database_the_command_says_so_and_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["audit", str(tmp_path / "typo")])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.mission("C7", "C10")
def test_a_morning_on_postgresql_passes_all_lines_too(postgres: Postgres, tmp_path: Path) -> None:
    database = f"{new_database(postgres, f'morning_{os.getpid()}')}?migrate=1"
    printed: list[str] = []
    morning(tmp_path, database, lambda *words: printed.append(" ".join(map(str, words))))
    found = audit(AuditData(database, tmp_path / "outside.db"))
    assert [one.wrong for one in found] == [[]] * 16
    assert printed[-3:] == ["mails    4", "charges  1", "alerts   4"]


def test_a_mail_of_a_replaced_owner_is_counted_separately_and_a_mail_sent_again_is_not() -> None:
    """The second claim has token 100. Its owner asks the server first, so it must see any mail sent before 100."""
    mails = {
        name: Mail(at, "<m>", "p1", token)
        for name, at, token in (("early", 90, 50), ("late", 110, 50), ("second", 105, 100))
    }
    assert resent([mails["early"], mails["second"]]) == ([mails["second"]], [])
    assert resent([mails["late"], mails["second"]]) == ([], [mails["second"]])
    assert resent([mails["early"], mails["early"]]) == ([mails["early"]], [])
