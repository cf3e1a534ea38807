"""Create database files that only their owner can read."""

from __future__ import annotations

import os
from contextlib import suppress

MODE = 0o600
"""SQLite gives its -wal and -shm files the mode of the database."""


def create_private_file(path: str) -> None:
    """Create an empty file with mode 0600, unless it exists. If that fails, SQLite reports the error itself."""
    if path == ":memory:":
        return
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, MODE))
