"""`onceward import`: import a file into people."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec.structs import asdict

from . import display
from .display import safe
from .exit_codes import Exit
from .program import OUTPUT, PEOPLE, CommandError, program, wants_json

if TYPE_CHECKING:
    from onceward.imports import Progress, Summary

FORMATS: Final = ("csv", "ndjson", "parquet")
BATCH: Final = 1_000
ACCEPT, ASK = 0.9, 0.5
ORDERS: Final = ("dmy", "mdy", "ymd")
"""Repeated from the library, so that only an actual import loads the optional dependencies."""

REDRAW_INTERVAL: Final = 0.1
"""Seconds between two updates of the progress bar."""

HELP: Final = """Import a CSV, NDJSON or Parquet file into people, once per content.

Each row is added to the person it describes, or to a new person: matched by e-mail or external id, otherwise by
similarity. Columns that are not mapped are stored under their own names. Invalid rows are written to a reject file,
with line number and reason; correct that file and import it.

If the import is interrupted, even by kill -9, the same command resumes where it stopped. Importing the same file again
does nothing; for an edited file, unchanged rows are skipped.

\b
Examples:
  onceward import users.csv --people sqlite:///people.db --map Email=email --map "Full name"=name
  onceward import users.csv --people sqlite:///people.db --dry-run        what would happen
  onceward import staff.csv --people sqlite:///people.db --no-similarity  match by e-mail and external id only
  onceward import hr-2026-02.csv --name hr --id "Employee no" --people postgresql://localhost/crm

Exit code 1: rows were rejected, in this run, in a dry run, or when the file was imported before.
"""


@program.command("import", help=HELP)
@click.argument("file", type=click.Path(path_type=Path))
@PEOPLE
@click.option(
    "--map", "mapped", multiple=True, metavar="COLUMN=FIELD", help="Map a column to a field. May be repeated."
)
@click.option("--ignore", multiple=True, metavar="COLUMN", help="Skip a column. May be repeated.")
@click.option(
    "--id",
    multiple=True,
    metavar="COLUMN",
    help="Column that identifies a row.  [default: external id or e-mail]",
)
@click.option("--source", default="csv", show_default=True, help="Name of the source of this data.")
@click.option(
    "--name", help="Name shared by all editions of this file: rows replace earlier ones.  [default: file name]"
)
@click.option("--format", type=click.Choice(FORMATS), help="File format.  [default: from the file extension]")
@click.option("--encoding", help="Encoding of a CSV file.  [default: detected]")
@click.option("--delimiter", help="Delimiter of a CSV file, or: tab.  [default: detected]")
@click.option("--dates", type=click.Choice(ORDERS), help="Order of day, month and year.  [default: detected]")
@click.option("--country", help="Country of phone numbers without a country code, such as US.")
@click.option("--largest-row", type=click.IntRange(1), metavar="SIZE", help="Reject longer rows.")
@click.option("--rejects", type=click.Path(path_type=Path), help="The reject file.  [default: next to FILE]")
@click.option("--batch", type=click.IntRange(1), default=BATCH, show_default=True, help="Rows per transaction.")
@click.option("--merge-at", type=click.FloatRange(0, 1, min_open=True), default=ACCEPT, show_default=True,
              help="Minimum confidence to match a row to a person.")  # fmt: skip
@click.option("--ask-at", type=click.FloatRange(0, 1, min_open=True), default=ASK, show_default=True,
              help="Minimum confidence for a pair to review.")  # fmt: skip
@click.option("--rule", "rules", multiple=True, metavar="FIELD,FIELD",
              help="Rows that are equal in these fields are one person. May be repeated.")  # fmt: skip
@click.option("--untrusted", is_flag=True,
              help="Rows of this source cannot identify people by key, connect people or replace values.")  # fmt: skip
@click.option("--field", "fields", multiple=True, metavar="NAME=KIND",
              help="Declare a field, such as badge=number or staff_no=key. May be repeated.")  # fmt: skip
@click.option("--no-similarity", "by_keys", is_flag=True, help="Match people by e-mail and external id only.")
@click.option(
    "--dry-run", is_flag=True, help="Change nothing: only report what would happen, and write the reject file."
)
@click.option("--restart", is_flag=True, help="Start over, because the file was edited after an interrupted import.")
@click.option("--again", is_flag=True, help="Import the file even if it was imported before.")
@OUTPUT
def import_command(
    *,
    file: Path,
    url: str,
    source: str,
    mapped: tuple[str, ...],
    merge_at: float,
    ask_at: float,
    rules: tuple[str, ...],
    untrusted: bool,
    fields: tuple[str, ...],
    by_keys: bool,
    **options: Any,
) -> int:
    """Import the file. `options` are passed on to `import_file`."""
    from onceward.imports import import_file
    from onceward.people import MergeRule
    from onceward.people.stored_declaration import open_people

    progress_bar = ProgressBar() if sys.stderr.isatty() else None
    declared = [MergeRule(tuple(name.strip() for name in rule.split(","))) for rule in rules]
    people = open_people(
        url,
        accept=merge_at,
        ask=min(merge_at, ask_at),
        similarity=not by_keys,
        rules=declared or None,
        untrusted=[source] if untrusted else [],
        more_fields=[_parse_field(one) for one in fields],
    )
    try:
        summary = import_file(
            file, people, source=source, map=_parse_mappings(mapped), on_progress=progress_bar, **options
        )
    except KeyboardInterrupt:
        raise CommandError("stopped → run the same command again to resume", Exit.ATTENTION) from None
    finally:
        people.close()
        if progress_bar is not None:
            progress_bar.end()
    _print_summary(summary)
    return Exit.ATTENTION if summary.counts.rejected else Exit.OK


def _parse_mappings(written: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for column, field in map(_parse_mapping, written):
        if pairs.setdefault(column, field) != field:
            raise CommandError(f"--map maps {column!r} to both {pairs[column]} and {field} → choose one", Exit.USAGE)
    return pairs


def _parse_mapping(written: str) -> tuple[str, str]:
    column, equals, field = written.rpartition("=")
    if not (column and equals and field):
        raise CommandError(f"--map {written!r} is not COLUMN=FIELD → such as Email=email", Exit.USAGE)
    return column, field


def _parse_field(written: str) -> tuple[str, str]:
    name, equals, kind = written.partition("=")
    if not (name and equals and kind):
        raise CommandError(f"--field {written!r} is not NAME=KIND → such as badge=number", Exit.USAGE)
    return name, kind


def _print_summary(summary: Summary) -> None:
    if wants_json():
        display.print_json(asdict(summary) | {"counts": asdict(summary.counts)})
        return
    if summary.guessed and not summary.replayed:
        click.echo(f"read as {summary.encoding} (detected): use --encoding if names look wrong")
    for column, field in summary.overlooked.items():
        click.echo(safe(f'{column} was stored under its own name: use --map "{column}={field}" to match people by it'))
    for line in _remarks(summary):
        click.echo(safe(line))
    if summary.resumed_at:
        click.echo(f"resumed after row {summary.resumed_at:,}")
    if summary.replayed:
        click.echo(f"{safe(summary.name)} was imported before, so nothing was done now. Result of that import:")
    click.echo(f"{summary}{'  (dry run: nothing was changed)' if summary.dry_run else ''}")
    if summary.rejects is not None:
        gone = "" if Path(summary.rejects).exists() else "  (the file no longer exists; --again writes it again)"
        click.echo(f"rejected rows, with line numbers and reasons: {safe(summary.rejects)}{gone}")


def _remarks(summary: Summary) -> list[str]:
    """Return notes for the user about how the file was read."""
    lines = []
    if summary.dates_detected:
        lines.append(f"dates were read as {summary.dates} (detected): use --dates if they look wrong")
    if summary.dates_ambiguous:
        lines.append("dates may be day first or month first, and day first was assumed: use --dates dmy or --dates mdy")
    for field, count in summary.ignored.items():
        hint = " (use --country for numbers without a country code)" if field == "phone" else ""
        lines.append(f"{count:,} values of {field} could not be read, so they match no one{hint}")
    if summary.earlier_edition is not None and not summary.replayed:
        from onceward.imports.editions import suggested_name

        earlier, name = summary.earlier_edition.partition("/")[2], suggested_name(summary.name)
        lines.append(
            f"this looks like the next edition of {earlier}: use --name {name} for every edition, so that rows replace"
            " earlier ones"
        )
    return lines


class ProgressBar:
    """A progress bar that is redrawn in place."""

    def __init__(self) -> None:
        self._drawn_at = float("-inf")
        self._width = 0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._drawn_at < REDRAW_INTERVAL and progress.share < 1:
            return
        self._drawn_at = now
        from onceward.imports.progress import bar

        line = safe(bar(progress))
        sys.stderr.write(f"\r{line:<{self._width}}")
        sys.stderr.flush()
        self._width = len(line)

    def end(self) -> None:
        if self._width:
            sys.stderr.write("\n")
