"""Which points of the mission, rivals, faults and findings have a test: read from the marks in the source of the tests.

`python -m tests.marked_points > tests/marked_points.txt` renews the committed list.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

KINDS = ("mission", "rival", "fault", "finding")
ROOT = Path(__file__).parent.parent


def marked_points() -> list[str]:
    """Return every point that at least one test is marked with, such as `mission A3`, in natural order."""
    found = {point for folder in ("tests", "examples") for path in (ROOT / folder).rglob("*.py") for point in _in(path)}
    return sorted(
        found, key=lambda point: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", point)]
    )


def _in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KINDS):
            continue
        if ast.unparse(node.func.value) == "pytest.mark":
            yield from (
                f"{node.func.attr} {one.value}"
                for one in node.args
                if isinstance(one, ast.Constant) and isinstance(one.value, int | str)
            )


if __name__ == "__main__":
    print("\n".join(marked_points()))
