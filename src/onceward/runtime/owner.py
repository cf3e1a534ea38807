"""The owner name in records: host and process id, for people who read them."""

from __future__ import annotations

import os

from onceward.protocol.fork import call_in_forked_child


class ProcessOwner:
    """Host and process id, updated after a fork."""

    def __init__(self) -> None:
        self.name = ""
        self.rename()
        call_in_forked_child(self.rename)

    def rename(self) -> None:
        host = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")  # Windows
        self.name = f"{host}:{os.getpid()}"


THIS_PROCESS = ProcessOwner()
