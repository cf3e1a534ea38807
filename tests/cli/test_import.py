"""`onceward import`: a file into people, from the command line."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onceward.cli import import_file as imports
from onceward.cli.exit_codes import Exit
from onceward.imports.open_rows import FORMATS
from onceward.imports.runner import BATCH
from onceward.people import People
from onceward.people.fields import ACCEPTED, REVIEWED
from tests.cli.calls import as_json, call, environment, line, on_a_terminal, process
from tests.imports.files import rejected, users, write


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def count(folder: Path) -> int:
    with People(f"sqlite:///{folder}/people.db") as people:
        return len(people)


@pytest.mark.mission("C5", "D3")
def test_a_file_is_imported_and_the_summary_printed(folder: Path) -> None:
    write(folder / "users.csv", [("anna@example.com", "Anna Berg", "A"), ("bo@example.com", "Bo Falk", "B")])
    words = ("import", "users.csv", "--into", "sqlite:///people.db", "--map", "Name=name", "--ignore", "Team")
    dry = call(*words, "--dry-run", "-o", "table")
    assert dry.stdout == (
        "created 2 / updated 0 / skipped 0 / rejected 0 / to review 0  (dry run: nothing was changed)\n"
    )
    assert as_json(*words)["counts"] == {"created": 2, "updated": 0, "skipped": 0, "rejected": 0, "to_review": 0}
    again = call(*words, "-o", "table")
    assert again.exit_code == 0
    assert again.stdout.startswith("csv/users.csv was imported before, so nothing was done now.")
    assert count(folder) == 2


def test_a_dry_run_and_a_repeated_import_report_rejected_rows_like_the_run_itself(folder: Path) -> None:
    write(folder / "users.csv", [*users(2), ("bad", "", "")])
    words = ("import", "users.csv", "--people", "sqlite:///people.db", "-o", "table")
    dry, real, again = call(*words, "--dry-run"), call(*words), call(*words)
    assert {dry.exit_code, real.exit_code, again.exit_code} == {Exit.ATTENTION}
    for done in (dry, real, again):
        assert "rejected 1" in done.stdout
        assert "rejected rows, with line numbers and reasons: " in done.stdout
    [trial] = folder.glob("*-trial.csv")
    assert [row[0] for row in rejected(trial)] == ["4"]
    for file in folder.glob("*.rejected-*"):
        file.unlink()
    assert "the file no longer exists" in call(*words).stdout


@pytest.mark.finding("N65")
@pytest.mark.parametrize(
    ("words", "people", "to_review"),
    [
        ((), 3, 2),
        (("--rule", "name,city,country"), 2, 1),
        (("--rule", "name,city,country", "--merge-at", "0.99"), 3, 2),
        (("--ask-at", "0.99", "--merge-at", "0.99"), 3, 0),
        (("--no-similarity",), 3, 0),
    ],
)
def test_the_thresholds_and_rules_are_options(
    folder: Path, words: tuple[str, ...], people: int, to_review: int
) -> None:
    rows = 'Name,City,Country\nAnna Schmidt,Berlin,DE\nAna Schmidt,Berlin,DE\n"Schmidt, Anna",berlin,Germany\n'
    (folder / "users.csv").write_text(rows)
    summary = as_json("import", "users.csv", "--people", "sqlite:///people.db", *words)
    assert (count(folder), summary["counts"]["to_review"]) == (people, to_review)
    assert call("import", "users.csv", "--merge-at", "0", "--people", "sqlite:///people.db").exit_code == Exit.USAGE


def test_rejected_rows_are_reported_and_the_exit_code_is_one(folder: Path) -> None:
    write(folder / "users.csv", [*users(2), ("bad", "", "")])
    done = call("import", "users.csv", "--into", "sqlite:///people.db", "--rejects", "bad.csv", "-o", "table")
    assert done.exit_code == Exit.ATTENTION
    assert "rejected 1" in done.stdout
    assert f"reasons: {folder}/bad.csv" in done.stdout
    assert [row[0] for row in rejected(folder / "bad.csv")] == ["4"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("users.csv", "--map", "Email"), "--map 'Email' is not COLUMN=FIELD → such as Email=email"),
        (("users.csv", "--map", "Emial=email"), "there is no column 'Emial' → did you mean 'Email'?"),
        (("users.csv", "--map", "Email=emial"), "'Email' is mapped to 'emial', which is nearly 'email' → write email"),
        (
            ("users.csv", "--map", "Name=last_name"),
            "'Name' is mapped to 'last_name', which is 'surname' → write surname",
        ),
        (
            ("users.csv", "--map", "Name=surname", "--map", "Name=given_name"),
            "--map maps 'Name' to both surname and given_name → choose one",
        ),
        (("none.csv",), "none.csv does not exist"),
        (("empty.csv",), "empty.csv is empty"),
        (("users.csv", "--encoding", "klingon"), "there is no text encoding 'klingon'"),
    ],
)
def test_what_cannot_work_is_one_line(folder: Path, words: tuple[str, ...], complaint: str) -> None:
    write(folder / "users.csv", users(1))
    (folder / "empty.csv").touch()
    done = call("import", *words, "--into", "sqlite:///people.db")
    assert done.exit_code == Exit.USAGE
    assert line(done).startswith(f"onceward: {complaint}")


def test_a_column_that_is_probably_a_known_field_is_reported_and_not_mapped(folder: Path) -> None:
    (folder / "users.csv").write_text("Email,Birthday,Last name,Surname,Team\na@example.com,1980-02-01,Berg,Berg,UVM\n")
    done = call("import", "users.csv", "--into", "sqlite:///people.db", "-o", "table")
    hint = 'Birthday was stored under its own name: use --map "Birthday=date_of_birth" to match people by it'
    assert done.stdout.splitlines()[0] == hint
    assert "Last name" not in done.stdout, "its field is filled by another column"
    words = ("import", "users.csv", "--into", "sqlite:///people.db")
    assert as_json(*words)["overlooked"] == {"Birthday": "date_of_birth"}
    assert as_json(*words, "--map", "Birthday=date_of_birth")["overlooked"] == {}


def test_a_guessed_encoding_is_reported(folder: Path) -> None:
    (folder / "users.csv").write_bytes("Email,City\nanna@example.com,Zürich\n".encode("cp1252"))
    done = call("import", "users.csv", "--into", "sqlite:///people.db", "-o", "table")
    assert done.stdout.startswith("read as cp1252 (detected): use --encoding if names look wrong\n")


def test_a_person_sees_a_bar(folder: Path) -> None:
    write(folder / "users.csv", users(30))
    code, seen = on_a_terminal(
        folder, "import", "users.csv", "--into", "sqlite:///people.db", "--batch", "10", COLUMNS="120"
    )
    assert code == 0, seen
    text = seen.decode()
    assert re.search(r"users\.csv  █{24}  100%   30 rows   [\d,]+ rows/s   0:00 left", text), text
    assert "created 30" in text


STRUCK = """
import os, signal, sys
from onceward.cli.program import start
from onceward.imports.runner import Import

original = Import._import_batch

signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent that runs us in the background may have it ignored

def struck(self, *args):
    entry = original(self, *args)
    if entry.done == 5:
        os.kill(os.getpid(), int(sys.argv[1]))
    return entry

Import._import_batch = struck
start(sys.argv[2:])
"""


def struck(folder: Path, number: int, *words: str) -> tuple[int, bytes]:
    """Run the command and send it this signal after five rows."""
    command = [sys.executable, "-c", STRUCK, str(int(number)), *words]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, check=False, timeout=200)
    return done.returncode, done.stderr


@pytest.mark.fault("F30", "F75")
@pytest.mark.mission("D3")
def test_killed_in_the_middle_the_same_command_resumes(folder: Path) -> None:
    file = write(folder / "users.csv", [*users(10), ("bad", "", "")])
    words = ("import", "users.csv", "--into", "sqlite:///people.db", "--batch", "1")
    assert struck(folder, signal.SIGKILL, *words)[0] == -signal.SIGKILL
    assert count(folder) == 5
    content = file.read_bytes()
    file.write_bytes(content + b"new@example.com,New,T\n")
    code, _, err = process(folder, *words)
    assert (code, b"was edited since its import stopped after row 5" in err) == (Exit.USAGE, True)
    file.write_bytes(content)
    code, out, _ = process(folder, *words)
    assert code == Exit.ATTENTION
    summary = json.loads(out)
    assert summary["resumed_at"] == 5
    assert summary["counts"] == {"created": 10, "updated": 0, "skipped": 0, "rejected": 1, "to_review": 0}
    assert count(folder) == 10


def test_interrupted_by_hand_it_says_how_to_resume(folder: Path) -> None:
    write(folder / "users.csv", users(10))
    words = ("import", "users.csv", "--into", "sqlite:///people.db", "--batch", "1")
    code, err = struck(folder, signal.SIGINT, *words)
    assert code == Exit.ATTENTION
    assert err.strip().endswith("onceward: stopped → run the same command again to resume".encode())
    assert as_json(*words)["resumed_at"] == 5


def test_texts_that_appear_twice_are_equal() -> None:
    assert imports.FORMATS == FORMATS
    assert imports.BATCH == BATCH
    assert (imports.ACCEPT, imports.ASK) == (ACCEPTED, REVIEWED)


def test_the_command_starts_without_the_extras_of_people() -> None:
    script = "import sys, onceward.cli.import_file; print('onceward.people' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
