"""The address of a record in the console, if one is configured."""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "ONCEWARD_CONSOLE_URL"
"""The address of the console, such as https://ops.example.com/onceward."""


def console_url(id: bytes) -> str | None:
    """Return the page of the record with this id; None if `ONCEWARD_CONSOLE_URL` is not set."""
    base = os.environ.get(VARIABLE, "").strip()
    return f"{base.rstrip('/')}/keys/{id.hex()}" if base else None
