"""`python -m tests.fuzz [--seconds 60] [--seed N] [--only NAME]`: random inputs for every parser of outside bytes."""

from __future__ import annotations

import argparse
import logging
import secrets
import sys
import time

from tests.fuzz.fuzz import Broken, fuzz
from tests.fuzz.targets import TARGETS

ENDLESS = 1 << 60


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for all targets together")
    parser.add_argument("--seed", type=int, default=None, help="repeat an earlier run")
    parser.add_argument("--only", choices=sorted(TARGETS), default=None)
    chosen = parser.parse_args()
    logging.disable()  # the console logs each request that it refuses
    seed = secrets.randbelow(1 << 32) if chosen.seed is None else chosen.seed
    names = [chosen.only] if chosen.only else list(TARGETS)
    print(f"seed {seed}: to repeat, python -m tests.fuzz --seed {seed}", flush=True)
    failed = False
    for name in names:
        deadline = time.monotonic() + chosen.seconds / len(names)
        done = 0
        try:
            for _ in fuzz(name, seed, ENDLESS):
                done += 1
                if time.monotonic() > deadline:
                    break
        except Broken as error:
            failed = True
            print(f"BROKEN {error}", file=sys.stderr, flush=True)
        print(f"{name:20} {done:>9,} inputs", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
