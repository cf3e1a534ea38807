"""Run one of the example systems: `python -m examples.service SYSTEM COMMAND…`, the entry point of the container."""

from __future__ import annotations

import runpy
import sys

SYSTEMS = ("documents", "fleet", "learning", "outreach", "submissions")


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] not in SYSTEMS:
        sys.exit(f"usage: python -m examples.service SYSTEM COMMAND…; systems are {', '.join(SYSTEMS)}")
    system, *sys.argv[1:] = arguments
    runpy.run_module(f"examples.{system}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
