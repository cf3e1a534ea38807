"""Import files into people: once per content, and resumed where an earlier run stopped, without losing a row.

Read `runner.py` first: it carries one import from its claim to its end.
"""

from __future__ import annotations

from .api import import_file
from .progress import Progress
from .summary import Counts, Summary

__all__ = ["Counts", "Progress", "Summary", "import_file"]
