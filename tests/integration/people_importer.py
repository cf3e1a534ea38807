"""An importer in its own process: `python -m tests.integration.people_importer URL NAME SEED BATCH_SIZE FOLDER`."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from onceward.people import People, SourceRecord
from tests.people_backends import PROSPECTS

GIVEN = ("Anna", "Bernd", "Clara", "David", "Emil", "Frida", "Georg", "Hanna", "Ivan", "Jutta")
SURNAMES = ("Schmidt", "Weber", "Okafor", "Nakamura", "Rossi")
SIZE = len(GIVEN) * len(SURNAMES)


def rows(source: str) -> list[SourceRecord]:
    """Return a hundred rows about fifty people: each person once by email address, once by name and city."""
    found = []
    for number, (given, surname) in enumerate((one, other) for one in GIVEN for other in SURNAMES):
        place = {"name": f"{given} {surname}", "city": "Berlin", "country": "DE"}
        found.append(SourceRecord(source, place | {"email": f"{given}.{surname}@example.com"}, f"{number} mail"))
        found.append(SourceRecord(source, place, f"{number} place"))
    return found


def main(url: str, name: str, seed: str, batch_size: str, folder: str) -> None:
    mine = rows(name)
    random.Random(int(seed)).shuffle(mine)
    with People(url, rules=PROSPECTS) as people:
        (Path(folder) / f"{name} is ready").touch()
        while not (Path(folder) / "go").exists():
            time.sleep(0.001)
        for start in range(0, len(mine), int(batch_size)):
            people.add_many(mine[start : start + int(batch_size)])


if __name__ == "__main__":
    main(*sys.argv[1:])
