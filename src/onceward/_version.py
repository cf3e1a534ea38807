"""The version, in the one place where the build and the code both read it."""

from __future__ import annotations

__version__ = "0.1.0"
