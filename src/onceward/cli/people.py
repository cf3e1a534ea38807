"""`onceward people`: search, show, export and delete people, answer questions from a file, and train the model."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onceward.errors import ConfigurationError

from . import display
from .confirm import YES, ask
from .display import safe
from .exit_codes import Exit
from .program import OUTPUT, PEOPLE, POSITIVE_COUNT, CommandError, program, wants_json
from .review import contribution_json, evidence_json, fields_text, get_person, person_json, person_lines

if TYPE_CHECKING:  # optional dependency: other commands work without it
    from onceward.people import People

KINDS: Final = ("golden", "crosswalk", "evidence")
FORMATS: Final = ("csv", "ndjson", "parquet")
BACKENDS: Final = ("duckdb", "spark")
MAX_QUESTIONS: Final = 10_000
ANSWERS: Final = ("same", "different")
COLUMNS: Final = ("one", "other", "answer")


@program.group("people")
def people_group() -> None:
    """Search, show, export and delete people; answer questions from a file; train the model; link all records.

    \b
    Examples:
      onceward people search name=schmidt city=berlin
      onceward people show p7                          its records, and the evidence of every merge
      onceward people export golden.csv                one row per person
      onceward people export crosswalk.parquet --what crosswalk
      onceward people answer answers.csv               a CSV file with the columns one, other, answer
      onceward people delete p7                        erase everything about a person
      onceward people train                            learn from your own records
      onceward people link                             compare all records in one batch
    """


@people_group.command("search")
@click.argument("wanted", metavar="FIELD=TEXT...", nargs=-1, required=True)
@click.option("--limit", type=POSITIVE_COUNT, default=20, show_default=True, help="Maximum number of people.")
@PEOPLE
@OUTPUT
def search_command(*, wanted: tuple[str, ...], limit: int, url: str) -> None:
    """List people whose fields contain these texts. Case and accents do not matter.

    \b
    Example:
      onceward people search name=schmidt city=berlin
    """
    fields = dict(_parse_field(one) for one in wanted)
    with _open(url) as people:
        found = people.search(limit, **fields)
    if wants_json():
        display.print_json([person_json(person) for person in found])
        return
    if not found:
        wanted_text = " and ".join(f"{text!r} in {name}" for name, text in fields.items())
        click.echo(safe(f"No one was found with {wanted_text}."), err=True)
    rows = [[person.id, ", ".join(person.sources), fields_text(person)] for person in found]
    if rows:
        display.print_table(("ID", "SOURCES", "FIELDS"), rows, elastic=(1, 2))


def _parse_field(written: str) -> tuple[str, str]:
    name, equals, text = written.partition("=")
    if not (name and equals and text):
        raise CommandError(f"{written!r} is not FIELD=TEXT → such as name=schmidt", Exit.USAGE)
    return name, text


@people_group.command("show")
@click.argument("id")
@PEOPLE
@OUTPUT
def show_command(*, id: str, url: str) -> None:
    """Show a person, its records, why each belongs to it, and the evidence of every merge.

    \b
    Example:
      onceward people show p7 -o json
    """
    with _open(url) as people:
        person = get_person(people, id)
        links = people.links(person.id)
    if wants_json():
        records = [
            contribution_json(part) | {"evidence": [evidence_json(one) for one in part.evidence]}
            for part in person.contributions
        ]
        pairs = [
            {name: getattr(link, name) for name in ("one", "other", "confidence")}
            | {"evidence": [evidence_json(one) for one in link.evidence]}
            for link in links
        ]
        display.print_json(person_json(person) | {"records": records, "links": pairs})
        return
    click.echo(safe(f"{person.id}: {fields_text(person)}"))
    click.echo(safe(f"keys: {', '.join(person.keys) or '–'}"))
    rows = [
        [str(part.number), part.source, part.record, part.rule, f"{part.confidence:.2f}"]
        for part in person.contributions
    ]
    display.print_table(("RECORD", "SOURCE", "ID", "BY", "SURE"), rows, elastic=(1, 2))
    for link in links:
        click.echo(f"\nrecords {link.one} and {link.other}: {link.confidence:.0%} likely the same person")
        lines = [[one.field, one.here, one.there, one.level, f"{one.weight:+.1f}"] for one in link.evidence]
        display.print_table(("FIELD", str(link.one), str(link.other), "COMPARED", "BITS"), lines, elastic=(1, 2))


@people_group.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--what", type=click.Choice(KINDS), default="golden", show_default=True,
              help="Merged people, source records with their people, or the evidence.")  # fmt: skip
@click.option("--format", "kind", type=click.Choice(FORMATS), help="File format.  [default: from the file extension]")
@PEOPLE
@OUTPUT
def export_command(*, file: Path, what: str, kind: str | None, url: str) -> None:
    """Write all people to a file: golden records, the crosswalk to the source records, or the evidence.

    \b
    Examples:
      onceward people export people.csv
      onceward people export crosswalk.parquet --what crosswalk
    """
    from onceward.people.export import export

    with _open(url) as people:
        count = export(people, file, what, kind)
    click.echo(safe(f"{count:,} rows were written to {file}."), err=True)


@people_group.command("delete")
@click.argument("id")
@YES
@PEOPLE
@OUTPUT
def delete_command(*, id: str, yes: bool, url: str) -> None:
    """Erase a person: every record, key, id and question, and the stored data about its imported rows.

    If a source still contains the person, its next import adds the person again.

    \b
    Example:
      onceward people delete p7 --yes
    """
    with _open(url) as people:
        ask("Erase this person", person_lines(people, id), yes=yes)
        count = people.delete(id)
    click.echo(f"{safe(id)} was erased, with {count} records.", err=True)


@people_group.command("answer")
@click.argument("file", type=click.Path(path_type=Path, exists=True))
@click.option("--who", help="Who answered, for the record.  [default: user and host]")
@PEOPLE
@OUTPUT
def answer_command(*, file: Path, who: str | None, url: str) -> int:
    """Answer many questions: a CSV file with the columns one, other and answer (same or different).

    A line that cannot be applied is reported; the other lines are still applied. Applying a file again changes nothing.

    \b
    Example:
      onceward people answer answers.csv --who anna
    """
    done = failed = 0
    with _open(url) as people, file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines)
        if not set(COLUMNS) <= set(reader.fieldnames or ()):
            raise CommandError(f"{file} needs the columns {', '.join(COLUMNS)}", Exit.USAGE)
        for row in reader:
            try:
                _apply(people, row, who)
                done += 1
            except ConfigurationError as error:
                failed += 1
                click.echo(safe(f"line {reader.line_num}: {error}"), err=True)
    click.echo(f"{done} answers were stored, {failed} were not.", err=True)
    return Exit.ATTENTION if failed else Exit.OK


def _apply(people: People, row: dict[str, Any], who: str | None) -> None:
    one, other, answer = ((row[name] or "").strip() for name in COLUMNS)
    if answer not in ANSWERS:
        raise ConfigurationError(f"the answer {answer!r} is unknown", hint="write same or different")
    if answer == "same":
        people.accept(one, other, who=who)
    else:
        people.reject(one, other, who=who)


@people_group.command("train")
@click.option("--relink", is_flag=True, help="Afterwards, compare all records again and reassign them to people.")
@PEOPLE
@OUTPUT
def train_command(*, relink: bool, url: str) -> None:
    """Estimate from the stored records how often fields agree and how frequent names are. No labels are needed.

    Answers from `onceward review` improve the estimates. Later decisions use them to compute their confidence.

    \b
    Example:
      onceward people train --relink
    """
    with _open(url) as people:
        model = people.train()
        count = people.relink() if relink else 0
    if not model.records:
        raise CommandError(
            "there are too few records to learn from, so the default model stays in use → import at least 50",
            Exit.ATTENTION,
        )
    click.echo(f"Learned from {model.records:,} records and {model.answers:,} answers.", err=True)
    if relink:
        click.echo(f"{count:,} records were compared again.", err=True)


@people_group.command("link")
@click.option("--backend", type=click.Choice(BACKENDS), default="duckdb", show_default=True,
              help="Where similar pairs are found: on this machine, or on Spark.")  # fmt: skip
@PEOPLE
@OUTPUT
def link_command(*, backend: str, url: str) -> None:
    """Compare all stored records in one batch and assign them to people again.

    Use it after a large import with --no-similarity, or after `onceward people train`. Splink finds
    the similar pairs. Onceward then decides with the rules of an import, so the people are the same. Keys and
    operators' answers still decide first. Running it again changes nothing.

    With --backend spark, it runs on the Spark session that spark-submit or the environment configures.

    \b
    Example:
      onceward people link --into postgresql://app@db/people
    """
    shown = sys.stderr.isatty()

    def show(count: int) -> None:
        if shown:
            click.echo(f"\r{count:,} records compared", nl=False, err=True)

    with _open(url) as people:
        before = len(people)
        if shown:
            click.echo(f"Finding similar pairs on {backend} …", err=True)
        count = people.link(backend, progress=show)
        total, questions = len(people), len(people.reviews(MAX_QUESTIONS))
    if shown:
        click.echo(err=True)
    if wants_json():
        display.print_json({"records": count, "people": total, "people_before": before, "questions": questions})
        return
    more = f" {questions:,} pairs need a decision: onceward review." if questions else ""
    click.echo(f"{count:,} records were compared: {total:,} people, {before:,} before.{more}", err=True)


def _open(url: str) -> People:
    from onceward.people.stored_declaration import open_declared_people

    return open_declared_people(url)
