"""The `onceward` command. Needs the extra `onceward[cli]`; without it, prints how to install it.

Read `program.py` first (options, settings, exit codes), then any command: one file per group of commands.
"""

from __future__ import annotations

import sys

INSTALL = 'onceward: the command needs click, which is not installed → pip install "onceward[cli]"'
USAGE, INTERRUPTED = 2, 130


def main() -> int:
    """Run the installed script, and return its exit code."""
    try:
        try:
            import click  # noqa: F401 (only checks that it is installed)
        except ModuleNotFoundError:
            print(INSTALL, file=sys.stderr)  # noqa: T201 (click is not available)
            return USAGE
        from .program import start

        return start()
    except KeyboardInterrupt:  # while the commands were loaded: nothing was started
        return INTERRUPTED
