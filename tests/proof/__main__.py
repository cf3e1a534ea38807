"""`python -m tests.proof [--deep]`: the protocol as a model, searched and proved, with the mutants that it refutes."""

from __future__ import annotations

import argparse
import sys
import time

from .report import run


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description="The protocol as a model.")
    parser.add_argument("--deep", action="store_true", help="larger bounds: minutes instead of seconds")
    began = time.perf_counter()
    done = run(deep=parser.parse_args(arguments).deep, write_line=lambda line: print(line, flush=True))
    print(f"\n{'Everything holds' if done.holds else 'SOMETHING DOES NOT HOLD'}, {time.perf_counter() - began:.0f} s")
    return 0 if done.holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
