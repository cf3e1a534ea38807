"""What an audit found, in words."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from .colors import BOLD, DIM, GREEN, RED, Paint
from .run import Run

NAMED = 3  # of each kind; the rest is counted
INDENT = "  "
WIDEST = 96  # columns


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
    for effect in run.effects if run.plan.guarded else ():
        yield from _wrapped(f"{effect.name}: {effect.promise}", paint)
    if audit.counted:
        counted = ", ".join(f"{what} {number}" for what, number in audit.counted.items() if number)
        yield from _wrapped(f"counted, not promised: {counted or 'nothing'}", paint)


def _wrapped(text: str, paint: Paint) -> Iterator[str]:
    """What is in front of the colon stands out."""
    width = min(WIDEST, shutil.get_terminal_size().columns - len(INDENT))
    first, *rest = textwrap.wrap(text, width, initial_indent=INDENT, subsequent_indent=2 * INDENT)
    name, colon, promise = first.partition(": ")
    yield name + colon + paint(promise, DIM)
    yield from (paint(line, DIM) for line in rest)


def _findings(kind: str, found: Sequence[str]) -> Iterator[str]:
    for one in found[:NAMED]:
        yield f"{kind}: {one}"
    if len(found) > NAMED:
        yield f"{kind}: {len(found) - NAMED} more"
