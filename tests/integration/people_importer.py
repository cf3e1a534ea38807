"""An importer of its own: `python -m tests.integration.people_importer URL NAME SEED AT_ONCE FOLDER`."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from onceward.people import People, SourceRecord

GIVEN = ("Anna", "Bernd", "Clara", "David", "Emil", "Frida", "Georg", "Hanna", "Ivan", "Jutta")
SURNAMES = ("Schmidt", "Weber", "Okafor", "Nakamura", "Rossi")
SIZE = len(GIVEN) * len(SURNAMES)


def rows(source: str) -> list[SourceRecord]:
    """A hundred rows about fifty people: each once by its address, once by name and place."""
    found = []
    for number, (given, surname) in enumerate((one, other) for one in GIVEN for other in SURNAMES):
        place = {"name": f"{given} {surname}", "city": "Berlin", "country": "DE"}
        found.append(SourceRecord(source, place | {"email": f"{given}.{surname}@example.com"}, f"{number} mail"))
        found.append(SourceRecord(source, place, f"{number} place"))
    return found


def main(url: str, name: str, seed: str, at_once: str, folder: str) -> None:
    mine = rows(name)
    random.Random(int(seed)).shuffle(mine)
    with People(url) as people:
        (Path(folder) / f"{name} is ready").touch()
        while not (Path(folder) / "go").exists():
            time.sleep(0.001)
        for start in range(0, len(mine), int(at_once)):
            people.add_many(mine[start : start + int(at_once)])


if __name__ == "__main__":
    main(*sys.argv[1:])
