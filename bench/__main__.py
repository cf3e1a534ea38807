"""Measure: `python -m bench [--quick] [-o json] [--only WORDS]`. Not in pairs: `--only import`, `loop`, `identity`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from bench import (
    cases_counting,
    cases_crowd,
    cases_keys,
    cases_many,
    cases_memory,
    cases_postgres,
    cases_redis,
    cases_sqlite,
    files,
    http,
    identity,
    imports,
    instructions,
    loop,
    newest,
    newest_postgres,
    newest_redis,
    queues,
    statements,
    steps,
)
from bench.case import QUICK, THOROUGH, Case, Cases, Plan
from bench.paired import compare
from bench.report import HEADER, LEGEND, Finding, document, row

SUBJECTS = (
    cases_memory,
    cases_sqlite,
    cases_crowd,
    cases_keys,
    cases_many,
    newest,
    newest_postgres,
    newest_redis,
    cases_postgres,
    cases_redis,
    queues,
    http,
    cases_counting,
)

ALONE = {
    "import": imports.main,
    "loop": loop.main,
    "identity": identity.main,
    "files": files.main,
    "statements": statements.main,
    "steps": steps.main,
    "instructions": instructions.main,
}
"""What is compared with nothing: run by its name only."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Onceward beside its peers and the bare storage, in pairs, with its bars."
    )
    parser.add_argument("--quick", action="store_true", help="a few rounds: to see that it works, not to quote")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument(
        "--only",
        default="",
        metavar="WORDS",
        help="cases whose names contain these words, such as 'sqlite fresh'; 'loop' and 'import' are run only this way",
    )
    parser.add_argument("--rounds", type=int, help="of A B B A, for every case")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    chosen = parse(arguments)
    if chosen.only in ALONE:
        return ALONE[chosen.only](quick=chosen.quick, as_json=chosen.output == "json")
    effort = QUICK if chosen.quick else THOROUGH
    table = chosen.output == "table"
    found: dict[str, Finding] = {}
    with tempfile.TemporaryDirectory(prefix="onceward-bench-") as folder:
        for case in cases(Plan(effort, Path(folder), tuple(chosen.only.split()))):
            if table and not found:
                print(HEADER)
            found[case.name] = case if not isinstance(case, Case) else measured(case, chosen.rounds)
            if table:
                print(row(case.name, found[case.name]), flush=True)
    if not found:
        print(f"no case is named like {chosen.only!r}", file=sys.stderr)
        return 1
    print(LEGEND if table else json.dumps(document(found, effort, quick=chosen.quick), indent=2))
    if table and chosen.quick:
        print(f"quick: not to be quoted; {effort.many:,} keys stand for a million")
    return 0


def cases(plan: Plan) -> Cases:
    """Each with its storage open for as long as the caller looks at it."""
    return (case for subject in SUBJECTS for case in subject.cases(plan))


def measured(case: Case, rounds: int | None) -> Finding:
    return compare(case.ours, case.theirs, case.pace._replace(rounds=rounds) if rounds else case.pace)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
