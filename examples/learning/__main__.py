"""Learning records: `python -m examples.learning`.

The sample files are imported and the statements delivered, all of it twice. In
the end every statement and every user is there once, and the statements know the teams from the CSV file.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from examples.learning.records import ENRICHED, Learning
from onceward.identity import People
from onceward.warehouse.duck import DuckWarehouse

FILES = Path(__file__).with_name("files")


def main() -> int:
    statements = [json.loads(line) for line in (FILES / "statements.ndjson").read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory(prefix="onceward-learning-") as folder:
        rejects = Path(folder) / "rejected.csv"
        with People(f"sqlite:///{folder}/people.db") as people:
            for attempt in ("first", "second"):  # everything is delivered again, to a new process
                house = DuckWarehouse(f"{folder}/house.duckdb")
                learning = Learning(people, house)
                print(f"{attempt} delivery")
                for name, mapped in (("users.csv", {"Full name": "name"}), ("hr.ndjson", {})):
                    summary = learning.import_users(FILES / name, map=mapped, rejects=rejects)
                    print(f"  {name:<16}{'nothing to do' if summary.replayed else summary}")
                loaded = learning.receive("batch 1", statements)
                print(f"  statements      {loaded.inserted} stored, {loaded.duplicates} known")
                learning.publish_users(f"users, {attempt}")
                rows = house.connection.execute(ENRICHED).fetchall()
                house.close()
            print("\nstatements, with what the CSV file knows of their users")
            for statement, user, verb, course, data in rows:
                print(f"  {statement}  {user:<18}{verb:<10}{course:<10}{data}")
            print(f"\nusers {len(people)}, rejected rows: {rejects.read_text(encoding='utf-8').splitlines()[1:]}")
            return 0 if (len(rows), len(people)) == (3, 4) else 1


if __name__ == "__main__":
    sys.exit(main())
