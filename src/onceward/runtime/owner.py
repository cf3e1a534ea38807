"""The owner name in records: host and process id, for people who read them."""

from __future__ import annotations

import os


class ProcessOwner:
    """Host and process id, updated after a fork."""

    def __init__(self) -> None:
        self.name = ""
        self.rename()
        if hasattr(os, "register_at_fork"):  # Windows has neither fork nor uname
            os.register_at_fork(after_in_child=self.rename)

    def rename(self) -> None:
        host = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
        self.name = f"{host}:{os.getpid()}"


THIS_PROCESS = ProcessOwner()
