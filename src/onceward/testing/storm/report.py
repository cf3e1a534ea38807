"""What an audit found, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .paint import BOLD, DIM, GREEN, RED, Paint
from .run import Run

NAMED = 5  # of each kind; the rest is counted


def report(run: Run, paint: Paint) -> Iterator[str]:
    """The lines about one run: the verdict, each finding in red, what is promised, and what was only counted."""
    audit = run.audit
    verdict = paint("passed", GREEN, BOLD) if audit.passed else paint("FAILED", RED, BOLD)
    wrong = f", wrong {len(audit.wrong)}" if audit.wrong else ""
    yield (
        f"{paint(run.system, BOLD)} {verdict}: {audit.effects} effects, {audit.expected} expected, "
        f"duplicates {len(audit.duplicates)}, lost {len(audit.lost)}{wrong}"
    )
    for line in (
        *_findings("duplicate", audit.duplicates),
        *_findings("lost", audit.lost),
        *_findings("wrong", audit.wrong),
    ):
        yield paint(f"  {line}", RED)
    for effect in run.effects:
        yield f"  {effect.name}: {paint(effect.promise, DIM)}"
    if audit.counted:
        counted = ", ".join(f"{number} {what}" for what, number in audit.counted.items())
        yield f"  counted, not promised: {counted}"


def _findings(kind: str, found: Sequence[str]) -> Iterator[str]:
    for one in found[:NAMED]:
        yield f"{kind}: {one}"
    if len(found) > NAMED:
        yield f"{kind}: {len(found) - NAMED} more"
