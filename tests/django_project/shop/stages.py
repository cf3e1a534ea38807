"""Stop a process at a stage of its work, so that a test can kill it there."""

import os
import sys
import time
from pathlib import Path


def reached(stage: str) -> None:
    """Wait forever if SHOP_STOP_AT names this stage. Report it first: in the file SHOP_STOPPED, or on stdout."""
    if os.environ.get("SHOP_STOP_AT") != stage:
        return
    if "SHOP_STOPPED" in os.environ:  # workers of Celery have no stdin and stdout of their own
        Path(os.environ["SHOP_STOPPED"]).touch()
        while True:
            time.sleep(60)
    print(f"reached {stage}", flush=True)
    sys.stdin.read()
