"""Format the result of an audit as text."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from .run import Run
from .terminal import BOLD, DIM, GREEN, RED, TerminalStyle

MAX_LISTED = 3  # findings of each kind; the rest is counted
INDENT = "  "
MAX_WIDTH = 96  # columns


def report(run: Run, style: TerminalStyle) -> Iterator[str]:
    """Yield the lines about one run: verdict, findings in red, promises, and effects that are only counted."""
    audit = run.audit
    verdict = style("passed", GREEN, BOLD) if audit.passed else style("FAILED", RED, BOLD)
    wrong = f", wrong {len(audit.wrong)}" if audit.wrong else ""
    yield (
        f"{style(run.system, BOLD)} {verdict}: {audit.effects} effects, {audit.expected} expected, "
        f"duplicates {len(audit.duplicates)}, lost {len(audit.lost)}{wrong}"
    )
    for line in (
        *_findings("duplicate", audit.duplicates),
        *_findings("lost", audit.lost),
        *_findings("wrong", audit.wrong),
    ):
        yield style(f"  {line}", RED)
    for effect in run.effects if run.plan.guarded else ():
        yield from _wrapped(f"{effect.name}: {effect.promise}", style)
    if audit.counted:
        counted = ", ".join(f"{what} {number}" for what, number in audit.counted.items() if number)
        yield from _wrapped(f"counted, not promised: {counted or 'nothing'}", style)


def _wrapped(text: str, style: TerminalStyle) -> Iterator[str]:
    """Wrap the text, with everything after the colon dimmed."""
    width = min(MAX_WIDTH, shutil.get_terminal_size().columns - len(INDENT))
    first, *rest = textwrap.wrap(text, width, initial_indent=INDENT, subsequent_indent=2 * INDENT)
    name, colon, promise = first.partition(": ")
    yield name + colon + style(promise, DIM)
    yield from (style(line, DIM) for line in rest)


def _findings(kind: str, found: Sequence[str]) -> Iterator[str]:
    for one in found[:MAX_LISTED]:
        yield f"{kind}: {one}"
    if len(found) > MAX_LISTED:
        yield f"{kind}: {len(found) - MAX_LISTED} more"
