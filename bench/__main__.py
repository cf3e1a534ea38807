"""The benchmark: `python -m bench [--quick] [-o FORMAT] [--only WORDS]`. `STANDALONE` benchmarks run only by name."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from bench import (
    cases_concurrent,
    cases_counting,
    cases_keys,
    cases_many,
    cases_memory,
    cases_pool,
    cases_postgres,
    cases_redis,
    cases_sqlite,
    console,
    files,
    footprint,
    http,
    imports,
    instructions,
    latest,
    latest_postgres,
    latest_redis,
    loop,
    people,
    people_calibration,
    people_speed,
    purge,
    queues,
    statements,
    steps,
)
from bench.case import QUICK, THOROUGH, Case, Cases, Plan
from bench.paired import compare
from bench.report import HEADER, LEGEND, Finding, document, markdown, row

SUBJECTS = (
    cases_memory,
    cases_sqlite,
    cases_concurrent,
    cases_keys,
    cases_many,
    latest,
    latest_postgres,
    latest_redis,
    cases_postgres,
    cases_pool,
    cases_redis,
    queues,
    http,
    cases_counting,
)

STANDALONE = {
    "console": console.main,
    "import": imports.main,
    "loop": loop.main,
    "people": people.main,
    "people-calibration": people_calibration.main,
    "people-speed": people_speed.main,
    "files": files.main,
    "footprint": footprint.main,
    "purge": purge.main,
    "statements": statements.main,
    "steps": steps.main,
    "instructions": instructions.main,
}
"""Benchmarks that compare with nothing else. They run only by their exact name."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Compare Onceward with other libraries and the bare storage, in pairs, and with its targets.",
    )
    parser.add_argument(
        "--quick", action="store_true", help="only a few rounds, to check that it works; do not quote the figures"
    )
    parser.add_argument("-o", "--output", choices=("table", "json", "markdown"), default="table")
    parser.add_argument(
        "--only",
        default="",
        metavar="WORDS",
        help="run cases whose names contain these words, such as 'sqlite fresh', or a standalone benchmark: "
        + ", ".join(STANDALONE),
    )
    parser.add_argument("--rounds", type=int, help="number of A B B A rounds for every case")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.only in STANDALONE:
        return STANDALONE[options.only](quick=options.quick, as_json=options.output == "json")
    effort = QUICK if options.quick else THOROUGH
    table = options.output == "table"
    found: dict[str, Finding] = {}
    with tempfile.TemporaryDirectory(prefix="onceward-bench-") as folder:
        for case in cases(Plan(effort, Path(folder), tuple(options.only.split()))):
            if table and not found:
                print(HEADER)
            found[case.name] = case if not isinstance(case, Case) else measure_case(case, options.rounds)
            if table:
                print(row(case.name, found[case.name]), flush=True)
    if not found:
        print(f"no case matches {options.only!r}", file=sys.stderr)
        return 1
    if options.output == "markdown":
        print(markdown(found))
        return 0
    print(LEGEND if table else json.dumps(document(found, effort, quick=options.quick), indent=2))
    if table and options.quick:
        print(f"quick: do not quote these figures; {effort.many:,} keys instead of a million")
    return 0


def cases(plan: Plan) -> Cases:
    """Yield the cases. The storage of each is open until the caller asks for the next one."""
    return (case for subject in SUBJECTS for case in subject.cases(plan))


def measure_case(case: Case, rounds: int | None) -> Finding:
    return compare(case.ours, case.theirs, case.pace._replace(rounds=rounds) if rounds else case.pace)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
