"""A saga: `python -m examples.saga`.

Workers are killed in the middle of it, and recovery finishes their work. Then files and rows are counted: every
published document has one of each, every refused one has neither.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

DOCUMENTS = {1: 3, 2: 0, 3: 5, 4: 2}
"""Number of pages by document. The warehouse refuses a document without pages."""

CRASHES = {3: "uploaded", 4: "inserted"}
"""The effect after which the worker of a document is killed."""


def main(arguments: Sequence[str] = ()) -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser("python -m examples.saga", description=__doc__, formatter_class=formatter).parse_args(
        arguments
    )
    with tempfile.TemporaryDirectory(prefix="onceward-saga-") as folder:
        (Path(folder) / "bucket").mkdir()
        os.environ["SAGA_FOLDER"] = folder
        for number, where in CRASHES.items():
            (Path(folder) / f"crash {where} {number}").touch()
        for number, pages in DOCUMENTS.items():
            print(f"document {number}: {deliver(number, pages)}")
        from examples.saga.app import once, publish

        print(f"\nafter the crashes:\n{describe_contents()}")
        while once.recover().running:  # until the leases of the killed workers have expired
            time.sleep(0.1)
        print(f"\nafter recovery:\n{describe_contents()}")
        states = [publish.read(number=number, company="ACME", date="2026-01-31", pages=pages)
                  for number, pages in DOCUMENTS.items()]  # fmt: skip
        print(", ".join(f"{entry.key} {entry.state}" for entry in states if entry is not None))
        files, rows = contents()
        once.close()
    correct = files == rows == [f"{number}_ACME_2026-01-31.pdf" for number in (1, 3, 4)]
    print("right: a file and a row, or neither" if correct else "WRONG")
    return 0 if correct else 1


def deliver(number: int, pages: int) -> str:
    """Run the saga in a subprocess, because it may be killed."""
    code = (
        "from examples.saga.app import publish;"
        f"print(publish.outcome(number={number}, company='ACME', date='2026-01-31', pages={pages}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return "its worker was killed" if done.returncode == -signal.SIGKILL else done.stdout.strip() or done.stderr


def contents() -> tuple[list[str], list[str]]:
    from examples.saga.app import BUCKET, warehouse

    with closing(warehouse()) as connection:
        rows = sorted(file for (file,) in connection.execute("SELECT file FROM documents"))
    return sorted(one.name for one in BUCKET.iterdir() if not one.name.startswith(".")), rows


def describe_contents() -> str:
    files, rows = contents()
    return f"  files {', '.join(files)}\n  rows  {', '.join(rows)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
