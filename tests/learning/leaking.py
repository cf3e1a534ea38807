"""The example with a planted leak: it keeps every batch. `python -m tests.learning.leaking consume …`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from examples.learning import __main__ as program
from examples.learning import backlog
from examples.learning.records import IncomingStatement, Learning
from examples.learning.storage import open_storage
from onceward.warehouse import Merged

KEPT: list[tuple[Sequence[IncomingStatement], bytes]] = []
PADDING = 6_000  # bytes per statement, so that it shows in a short run


class Leaking(Learning):
    """Correct, except that it never frees its batches."""

    def store(self, statements: Sequence[IncomingStatement], *, whole: bool = False) -> Merged:
        KEPT.append((statements, b"x" * PADDING * len(statements)))
        return super().store(statements, whole=whole)


if __name__ == "__main__":
    module: Any = backlog
    module.open_storage = partial(open_storage, kind=Leaking)
    sys.exit(program.main(sys.argv[1:]))
