"""The `onceward` command. Needs the extra `onceward[cli]`; without it, it says so."""

from __future__ import annotations

import sys

INSTALL = 'onceward: the command needs click, which is not installed → pip install "onceward[cli]"'
USAGE, INTERRUPTED = 2, 130


def main() -> int:
    """What the installed script calls; its answer is the exit code."""
    try:
        try:
            import click  # noqa: F401 (only whether it is there)
        except ModuleNotFoundError:
            print(INSTALL, file=sys.stderr)  # noqa: T201 (there is no click to say it with)
            return USAGE
        from .program import start

        return start()
    except KeyboardInterrupt:  # while the commands were loaded: nothing was begun
        return INTERRUPTED
