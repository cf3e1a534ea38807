"""A private server that speaks SQS (and more of AWS): the wheel `ministack`, part of the dev extra.

Its messages are in memory: a restart loses them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.servers.housed import HousedServer, get
from tests.servers.process import missing


class Ministack(HousedServer):
    """One server."""

    greeting = get("/_ministack/health")

    def __init__(self) -> None:
        program = Path(sys.executable).parent / "ministack"
        if not program.exists():
            missing("ministack", "pip install ministack (part of the dev extra)")
        super().__init__("aws", ["env", "GATEWAY_PORT={port}", "BIND_HOST=127.0.0.1", str(program)])
        self.url = f"http://{self.address}"
