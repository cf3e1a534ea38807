"""The reject file overwrites no other file, is not touched by a dry run, and may be put elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from onceward.errors import SourceError
from onceward.imports import Counts, Progress, import_file
from onceward.people import People
from tests.imports.files import rejected, write

ROWS = [("anna@example.com", "Anna Berg", "UVM"), ("no address", "Bo Falk", "ABC"), ("none", "Carl Quist", "ABC")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "users.csv", ROWS)


@pytest.mark.finding("N40")
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_in_its_place_is_not_followed(file: Path, people: People, tmp_path: Path, exists: bool) -> None:
    target = tmp_path / "target"
    if exists:
        target.write_text("")
    (tmp_path / "rejected.csv").symlink_to(target)
    with pytest.raises(SourceError, match="symbolic link"):
        import_file(file, people, rejects=tmp_path / "rejected.csv")
    assert target.exists() is exists
    assert not exists or target.read_text() == ""


def interrupt(_: Progress) -> None:
    raise KeyboardInterrupt


def test_if_it_cannot_be_written_another_place_for_it_helps(file: Path, people: People, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="choose another path"):
        import_file(file, people, rejects=tmp_path / "missing" / "rejected.csv")
    summary = import_file(file, people, rejects=tmp_path / "rejected.csv")
    assert summary.counts == Counts(created=1, rejected=2)
    assert [row[0] for row in rejected(tmp_path / "rejected.csv")] == ["3", "4"]


FULL = """
import resource, sys
from pathlib import Path
from onceward.errors import SourceError
from onceward.people import People
from onceward.imports import import_file

resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    import_file(sys.argv[1], People("sqlite://:memory:"), rejects=sys.argv[2], batch=5)
except SourceError as error:
    print(error)
"""


def test_a_disk_without_room_for_it_is_reported_in_one_line(tmp_path: Path) -> None:
    file = write(tmp_path / "users.csv", [("no address", "x" * 3_000, "") for _ in range(100)])
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(file), str(tmp_path / "rejected.csv")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert "File too large → free disk space: the file already holds earlier rows" in done.stdout


def test_once_it_has_rows_a_resumed_import_keeps_using_it(file: Path, people: People, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        import_file(file, people, rejects=tmp_path / "one.csv", batch=2, on_progress=interrupt)
    summary = import_file(file, people, rejects=tmp_path / "other.csv", batch=2)
    assert summary.rejects == str(tmp_path / "one.csv")
    assert len(rejected(tmp_path / "one.csv")) == 2
    assert not (tmp_path / "other.csv").exists()


@pytest.mark.parametrize("precious", ["people.db", "notes.txt"])
def test_a_file_that_is_not_a_reject_file_is_not_overwritten(
    file: Path, people: People, tmp_path: Path, precious: str
) -> None:
    path = tmp_path / precious
    if precious == "notes.txt":
        path.write_text("rejected_by,me\n")
    else:
        len(people)
    before = path.read_bytes()
    with pytest.raises(SourceError, match="is not a reject file"):
        import_file(file, people, rejects=path)
    assert path.read_bytes()[:16] == before[:16]
    assert len(people) == 0


def test_a_dry_run_of_an_interrupted_import_leaves_its_reject_file_alone(
    file: Path, people: People, tmp_path: Path
) -> None:
    path = tmp_path / "rejected.csv"
    with pytest.raises(KeyboardInterrupt):
        import_file(file, people, rejects=path, batch=1, on_progress=interrupt)
    dry = import_file(file, people, rejects=path, batch=1, dry_run=True)
    assert not path.exists()
    assert dry.rejects == str(tmp_path / "rejected-trial.csv")
    assert import_file(file, people, rejects=path, batch=1).counts == dry.counts == Counts(created=1, rejected=2)
