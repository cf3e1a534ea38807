"""The cost of `import onceward`: `python -m bench --only import`.

Run it in a virtual environment with nothing but Onceward: other packages slow down the start of every interpreter.
Bytecode is compiled first, as in an installed package. The statements alternate, so that a temporary slowdown of the
machine affects all of them.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from statistics import median
from typing import NamedTuple

STATEMENTS = (
    "import msgspec, ormsgpack",  # our dependencies: the lower bound
    "import onceward",
    "from onceward import AsyncOnce",
)
PROBE = """
import sys, time
started = time.perf_counter()
{statement}
took = time.perf_counter() - started
print(took, len(sys.modules))
"""


class Cost(NamedTuple):
    """The cost of one statement in a new interpreter: milliseconds, and the number of modules loaded in the end."""

    statement: str
    least: float
    median: float
    modules: int


def main(*, quick: bool, as_json: bool) -> int:
    found = measure(3 if quick else 30)
    if as_json:
        print(json.dumps({"python": platform.python_version(), "imports": [one._asdict() for one in found]}, indent=2))
        return 0
    print(f"{f'Python {platform.python_version()}':<32}{'least':>10}{'median':>10}{'modules':>10}")
    for one in found:
        print(f"{one.statement:<32}{one.least:>7.1f} ms{one.median:>7.1f} ms{one.modules:>10}")
    return 0


def measure(rounds: int) -> list[Cost]:
    with tempfile.TemporaryDirectory(prefix="onceward-bench-") as compiled:
        for statement in STATEMENTS:
            fresh(statement, compiled)
        taken = [[fresh(statement, compiled) for statement in STATEMENTS] for _ in range(rounds)]
    costs = []
    for statement, readings in zip(STATEMENTS, zip(*taken, strict=True), strict=True):
        times = [milliseconds for milliseconds, _ in readings]
        costs.append(Cost(statement, min(times), median(times), readings[0][1]))
    return costs


def fresh(statement: str, compiled: str) -> tuple[float, int]:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", PROBE.format(statement=statement)]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    return float(output[0]) * 1000, int(output[1])
