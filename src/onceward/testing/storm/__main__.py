"""`python -m onceward.testing.storm shop.storm:SHOP --seconds 20`."""

from __future__ import annotations

import sys

from .program import MISUSED, main

USAGE = "usage: python -m onceward.testing.storm package.module:SYSTEM [--help | options of the storm]"

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        asked = sys.argv[1:2] in (["-h"], ["--help"])
        print(USAGE, file=sys.stdout if asked else sys.stderr)
        sys.exit(0 if asked else MISUSED)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
