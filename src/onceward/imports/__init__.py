"""Imports of files into people: once per content, resumed where they stopped, with nothing lost."""

from __future__ import annotations

from .api import import_file
from .progress import Progress
from .summary import Counts, Summary

__all__ = ["Counts", "Progress", "Summary", "import_file"]
