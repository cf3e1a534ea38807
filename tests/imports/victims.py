"""An import killed by SIGKILL at every statement in turn, and resumed: `python -m tests.imports.victims FOLDER STRIDE`.

Each victim is a fork of this process, so that a kill costs no new interpreter. Prints differences, one per line, and
finally how many were killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from onceward.imports import import_file
from onceward.people import People
from onceward.people.on_sqlite import SQLiteTables
from tests.imports.files import rejected, users, write

BATCH = 4
COLUMNS = {
    "onceward_people": "id, fields, sources",
    "onceward_person_keys": "key, person",
    "onceward_contributions": "source, record, person, fields",
    "onceward_imports": "name, state, cycle, done, created, updated, skipped, rejected, to_review",
    "onceward_import_rows": "name, key, fingerprints, cycle, confirmed",
}


def main(folder: Path, stride: int) -> int:
    again = ("u1@example.com", "Renamed", "T")
    file = write(folder / "users.csv", [*users(6), ("bad 1", "", ""), *users(5, begin=6), again, ("bad 2", "", "")])
    before = prepared(folder)
    wanted = outcome(folder, file, before, kill_at=0)
    killed = differed = 0
    for step in range(1, 1_000, stride):
        found = outcome(folder, file, before, kill_at=step)
        if found is None:
            break  # the import ended before that step
        killed += 1
        if found != wanted:
            differed += 1
            print(f"killed at statement {step}: {found} instead of {wanted}")
    print(f"killed {killed}, differed {differed}")
    return 1 if differed or not killed else 0


def prepared(folder: Path) -> Path:
    """Create the tables first, so that the kill hits the import."""
    path = folder / "before.db"
    with People(f"sqlite:///{path}?synchronous=NORMAL") as people:
        import_file(write(folder / "old.csv", users(2)), people)
    return path


def outcome(folder: Path, file: Path, before: Path, kill_at: int) -> Any:
    """Return the final content of the tables and the reject file; None if no process was killed."""
    path = folder / "people.db"
    for old in folder.glob("people.db*"):
        old.unlink()
    shutil.copy(before, path)
    for old in folder.glob("users.rejected*"):
        old.unlink()
    if kill_at and not killed(path, file, kill_at):
        return None
    assert not killed(path, file, 0)
    with closing(sqlite3.connect(path)) as database:
        tables = [
            database.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2").fetchall()
            for table, columns in COLUMNS.items()
        ]
    (rejects,) = folder.glob("users.rejected*")
    return tables, rejected(rejects)


def killed(path: Path, file: Path, at: int) -> bool:
    """Return whether the child was killed: it is killed before its statement of that number."""
    child = os.fork()
    if child == 0:
        try:
            if at:
                count_down(at)
            with People(f"sqlite:///{path}?synchronous=NORMAL") as people:
                import_file(file, people, batch=BATCH)
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), f"the child ended with {code}"
    return code != 0


def count_down(left: int) -> None:
    def counted(verb: str) -> None:
        original = getattr(SQLiteTables, verb)

        def call(self: Any, *args: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(self, *args)

        setattr(SQLiteTables, verb, call)

    counted("run")
    counted("run_many")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
