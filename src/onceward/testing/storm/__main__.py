"""`python -m onceward.testing.storm shop.storm:SHOP --seconds 20`."""

from __future__ import annotations

import sys

from .program import MISUSED, main

USAGE = "usage: python -m onceward.testing.storm package.module:SYSTEM [--help | options]"

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        wants_help = sys.argv[1:2] in (["-h"], ["--help"])
        print(USAGE, file=sys.stdout if wants_help else sys.stderr)
        sys.exit(0 if wants_help else MISUSED)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
