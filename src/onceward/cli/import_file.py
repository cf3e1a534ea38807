"""`onceward import`: a file into people."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

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
ACCEPTED, ASKED = 0.9, 0.5
"""All said here once more: the extras that people need are only loaded by those who import."""

REDRAWN: Final = 0.1
"""Seconds between two pictures of the bar: more often nobody can see."""

HELP: Final = """Import a CSV, NDJSON or Parquet file into people, once per content.

Each row becomes part of the person it is about, or of a new one: by e-mail or external id, else by likeness. Columns
that are not mapped keep their names and are kept, too. Rows that cannot be taken in land in a reject file, with their
line and the reason; mend it and import it.

Interrupted, even by kill -9, the same command goes on where it stopped. The same file again does nothing; an edited one
skips the rows that are unchanged.

\b
Examples:
  onceward import users.csv --people sqlite:///people.db --map Email=email --map "Full name"=name
  onceward import users.csv --people sqlite:///people.db --dry-run      what would happen
  onceward import staff.csv --people sqlite:///people.db --no-likeness  by e-mail and external id alone
  onceward import hr-2026-02.csv --name hr --id "Employee no" --people postgresql://localhost/crm

Exit code 1: rows were rejected, now, in a dry run, or when the file was imported before.
"""


@program.command("import", help=HELP)
@click.argument("file", type=click.Path(path_type=Path))
@PEOPLE
@click.option("--map", "mapped", multiple=True, metavar="COLUMN=FIELD", help="A column's field. May be repeated.")
@click.option("--ignore", multiple=True, metavar="COLUMN", help="A column that is not taken in. May be repeated.")
@click.option("--id", "ids", multiple=True, metavar="COLUMN", help="Names a row.  [default: external id or e-mail]")
@click.option("--source", default="csv", show_default=True, help="Who says so: one of the person's sources.")
@click.option("--name", help="Which file this is an edition of: its rows replace themselves.  [default: its own name]")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="Instead of what the name's ending says.")
@click.option("--encoding", help="Of a CSV file.  [default: found out]")
@click.option("--delimiter", help="Of a CSV file, or: tab.  [default: found out]")
@click.option("--largest-row", type=click.IntRange(1), metavar="SIZE", help="Longer rows are rejected.")
@click.option("--rejects", type=click.Path(path_type=Path), help="The reject file.  [default: beside FILE]")
@click.option("--batch", type=click.IntRange(1), default=BATCH, show_default=True, help="Rows a transaction.")
@click.option("--accept", type=click.FloatRange(0, 1, min_open=True), default=ACCEPTED, show_default=True,
              help="From this confidence on a row is of the person it is like; below, it is a question.")  # fmt: skip
@click.option("--no-likeness", "by_keys", is_flag=True, help="Tell people by e-mail and external id alone.")
@click.option("--dry-run", is_flag=True, help="Change nothing: only tell what would happen, and write the reject file.")
@click.option("--restart", is_flag=True, help="The file was edited since it was interrupted: import it anew.")
@click.option("--again", is_flag=True, help="Import it although it was imported before.")
@OUTPUT
def import_command(
    *,
    file: Path,
    url: str,
    mapped: tuple[str, ...],
    ignore: tuple[str, ...],
    ids: tuple[str, ...],
    source: str,
    name: str | None,
    kind: str | None,
    encoding: str | None,
    delimiter: str | None,
    largest_row: int | None,
    rejects: Path | None,
    batch: int,
    accept: float,
    by_keys: bool,
    dry_run: bool,
    restart: bool,
    again: bool,
) -> int:
    from onceward.imports import import_file
    from onceward.people import People

    shown = Bar() if sys.stderr.isatty() else None
    people = People(url, accept=accept, ask=min(accept, ASKED), similarity=not by_keys)
    try:
        summary = import_file(
            file,
            people,
            source=source,
            name=name,
            map=_pairs(mapped),
            ignore=ignore,
            id=ids,
            format=kind,
            encoding=encoding,
            delimiter=delimiter,
            largest_row=largest_row,
            rejects=rejects,
            batch=batch,
            dry_run=dry_run,
            restart=restart,
            again=again,
            on_progress=shown,
        )
    except KeyboardInterrupt:
        raise CommandError("stopped → the same command goes on where it stopped", Exit.ATTENTION) from None
    finally:
        people.close()
        if shown is not None:
            shown.end()
    _tell(summary)
    return Exit.ATTENTION if summary.counts.rejected else Exit.OK


def _pairs(written: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for column, field in map(_pair, written):
        if pairs.setdefault(column, field) != field:
            raise CommandError(f"--map tells {column!r} to be {pairs[column]} and {field} → choose one", Exit.USAGE)
    return pairs


def _pair(written: str) -> tuple[str, str]:
    column, equals, field = written.rpartition("=")
    if not (column and equals and field):
        raise CommandError(f"--map {written!r} names no column and field → such as Email=email", Exit.USAGE)
    return column, field


def _tell(summary: Summary) -> None:
    if wants_json():
        display.print_json(asdict(summary) | {"counts": asdict(summary.counts)})
        return
    if summary.guessed and not summary.replayed:
        click.echo(f"read as {summary.encoding}, which is a guess: give --encoding if names look wrong")
    for column, field in summary.overlooked.items():
        click.echo(safe(f'{column} was kept under its own name: --map "{column}={field}" lets it tell people apart'))
    if summary.resumed_at:
        click.echo(f"went on behind row {summary.resumed_at:,}")
    if summary.replayed:
        click.echo(f"{safe(summary.name)} was imported before, and nothing was done now. Then:")
    click.echo(f"{summary}{'  (dry run: nothing was changed)' if summary.dry_run else ''}")
    if summary.rejects is not None:
        gone = "" if Path(summary.rejects).exists() else "  (it is not there any more; --again rejects them anew)"
        click.echo(f"rejected rows, each with its line and the reason: {safe(summary.rejects)}{gone}")


class Bar:
    """The progress, redrawn in place."""

    def __init__(self) -> None:
        self._drawn = float("-inf")
        self._width = 0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._drawn < REDRAWN and progress.share < 1:
            return
        self._drawn = now
        from onceward.imports.progress import bar

        line = safe(bar(progress))
        sys.stderr.write(f"\r{line:<{self._width}}")
        sys.stderr.flush()
        self._width = len(line)

    def end(self) -> None:
        if self._width:
            sys.stderr.write("\n")
