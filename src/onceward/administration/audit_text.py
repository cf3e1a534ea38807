"""Show audit entries to people: as JSON, as a sentence, and as a line."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from onceward.protocol.audit import AuditEntry

from .times import iso, moment, span


def as_json(entry: AuditEntry) -> dict[str, Any]:
    return {**asdict(entry), "at": iso(entry.at), "id": entry.id.hex() or None}


def action_text(entry: AuditEntry) -> str:
    """Return the verb and its details."""
    return f"{entry.verb} {entry.detail.replace('_', ' ')}".strip()


def change_text(entry: AuditEntry) -> str:
    if not (entry.id or entry.state_before):  # a purge or an erasure; a redacted entry keeps its states
        return f"{entry.count} record{'' if entry.count == 1 else 's'}"
    return f"{entry.state_before} → {entry.state_after}"


def sentence(entry: AuditEntry, now: int) -> str:
    """Return the sentence for `explain`."""
    when = f"{span(now - entry.at)} ago ({moment(entry.at)})"
    reason = f" Reason: {entry.why.rstrip('.')}." if entry.why else " No reason was given."
    changed = f"from {entry.state_before} to {entry.state_after}"
    return f"Changed manually {when}: {entry.who} ran {action_text(entry)}, {changed}.{reason}"


def line(entry: AuditEntry) -> str:
    """Return the line for `show`."""
    reason = f": {entry.why}" if entry.why else ""
    return f"{moment(entry.at)}  {entry.who}  {action_text(entry)}  {change_text(entry)}{reason}"
