"""Which statements write."""

from __future__ import annotations

from typing import Any

READING = frozenset({"SELECT", "SHOW", "PRAGMA", "EXPLAIN", "VALUES", "TABLE"})
CONTROL = frozenset({"BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "SET", "START", "END"})


def is_write(statement: str, context: Any) -> bool:
    """Return whether this statement may change rows. `context` is SQLAlchemy's execution context, or None."""
    if getattr(context, "compiled", None) is not None and not context.is_text:
        return bool(context.isinsert or context.isupdate or context.isdelete or context.isddl)
    words = statement.split(None, 1)
    return bool(words) and words[0].upper().rstrip(";") not in READING | CONTROL
