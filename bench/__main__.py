"""Measure: `python -m bench [--quick] [-o json] [--only WORDS]`. Not in pairs: `--only import`, `--only loop`."""

from __future__ import annotations

import argparse
import json
import platform
import sqlite3
import sys
import tempfile
from pathlib import Path

from bench import imports, loop
from bench.cases import cases
from bench.paired import Comparison, Ratio, compare

MICRO = 1_000_000

ALONE = {"import": imports.main, "loop": loop.main}
"""What is compared with nothing: run by its name only."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Onceward against the bare storage, in pairs.")
    parser.add_argument("--quick", action="store_true", help="a few rounds: to see that it works, not to quote")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--only", default="", help="cases whose name contains this, such as 'memory' or 'replay'")
    parser.add_argument("--rounds", type=int, help="of A B B A, default 40 (quick: 5)")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    chosen = parse(arguments)
    if chosen.only in ALONE:
        return ALONE[chosen.only](quick=chosen.quick, as_json=chosen.output == "json")
    rounds = chosen.rounds or (5 if chosen.quick else 40)
    seconds = 0.005 if chosen.quick else 0.02
    found: dict[str, Comparison] = {}
    with tempfile.TemporaryDirectory(prefix="onceward-bench-") as folder:
        for case in cases(Path(folder), chosen.only):
            found[case.name] = compare(case.ours, case.bare, rounds=rounds, seconds=seconds)
            if chosen.output == "table":
                _print_row(case.name, found[case.name], first=len(found) == 1)
    if chosen.output == "json":
        print(json.dumps(_document(found, quick=chosen.quick), indent=2))
    elif found:
        print("\nratio = Onceward / bare, median [95 %]; noise = bare / bare: what lies inside it says nothing")
    else:
        print(f"no case is named like {chosen.only!r}", file=sys.stderr)
    return 0 if found else 1


def _print_row(name: str, one: Comparison, *, first: bool) -> None:
    if first:
        print(f"{'one caller':<24}{'Onceward':>12}{'bare':>12}   {'ratio, wall':<20} {'ratio, CPU':<20} noise, wall")
    print(
        f"{name:<24}{one.a.wall * MICRO:>9.1f} µs{one.b.wall * MICRO:>9.1f} µs   "
        f"{_shown(one.wall):<20} {_shown(one.cpu):<20} {_shown(one.noise)}",
        flush=True,
    )


def _shown(ratio: Ratio) -> str:
    return f"{ratio.median:.2f} [{ratio.low:.2f}–{ratio.high:.2f}]"


def _document(found: dict[str, Comparison], *, quick: bool) -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "machine": platform.machine(),
        "quick": quick,
        "cases": {
            name: {
                "blocks": one.blocks,
                "pairs": one.pairs,
                "onceward_us": {"wall": one.a.wall * MICRO, "cpu": one.a.cpu * MICRO},
                "bare_us": {"wall": one.b.wall * MICRO, "cpu": one.b.cpu * MICRO},
                "ratio_wall": one.wall._asdict(),
                "ratio_cpu": one.cpu._asdict(),
                "noise_wall": one.noise._asdict(),
            }
            for name, one in found.items()
        },
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
