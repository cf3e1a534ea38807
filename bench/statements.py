"""Statements from a queue into DuckDB, 20 % of them duplicates: `python -m bench --only statements`.

200,000 messages in a Valkey stream, one consumer, in batches of 2,000. Not a comparison: the bar is a fixed number.
"""

from __future__ import annotations

import json
import platform
from typing import Final

from tests.learning.large import large

MESSAGES: Final = 200_000
QUICK: Final = 5_000
BAR: Final = 5_000
"""Statements per second, including duplicates."""


def main(*, quick: bool, as_json: bool) -> int:
    found = large(QUICK if quick else MESSAGES, 0)
    rate = found.messages_of_the_last_run / found.seconds_of_the_last_run if found.seconds_of_the_last_run else 0.0
    of_cpu = found.messages_of_the_last_run / (found.cpu_seconds_of_the_last_run or 1)
    if as_json:
        result = {**found._asdict(), "per_second": round(rate), "bar": BAR}
        print(json.dumps({"python": platform.python_version(), "statements": result}, indent=2))
    else:
        print(f"{found.messages:,} statements, {found.duplicates:,} of them duplicates: {found.statements:,} rows")
        print(
            f"{rate:,.0f} per second (bar: {BAR:,}), including start and final check; {found.seconds_of_the_last_run} s"
        )
        print(f"{of_cpu:,.0f} per CPU second, all threads")
        print(f"peak memory in each quarter of the run: {', '.join(f'{one} MiB' for one in found.peak_mib)}")
        print(f"typical memory in each quarter: {', '.join(f'{one} MiB' for one in found.resident_mib)}")
        print(*found.wrong, sep="\n", end="\n" if found.wrong else "")
    if quick:
        return 1 if found.wrong else 0  # too short to be meaningful
    return 0 if not found.wrong and rate >= BAR else 1
