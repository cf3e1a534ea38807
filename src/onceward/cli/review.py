"""`onceward review`: list pairs that may be the same person, and answer whether they are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from onceward.errors import ConfigurationError

from . import display
from .confirm import YES, ask
from .exit_codes import Exit
from .program import OUTPUT, PEOPLE, POSITIVE_COUNT, CommandError, program, wants_json

if TYPE_CHECKING:  # optional dependency: other commands work without it
    from onceward.people import Contribution, People, Person
    from onceward.people.review import Review

MISSING = "–"
MAX_RECORDS_SHOWN = 20  # records of a person in the preview of a change


@program.command()
@click.argument("ids", metavar="[ID [OTHER]]", nargs=-1)
@click.option("--same", "answer", flag_value="same", help="ID and OTHER are the same person: merge them.")
@click.option(
    "--different", "answer", flag_value="different", help="They are different people: never ask again, never merge."
)
@click.option("--split", "answer", flag_value="split", help="ID is several people: split it by shared keys.")
@click.option(
    "--record", "numbers", type=int, multiple=True, help="With --split: split off only this record. May be repeated."
)
@click.option("--ask", "asks", is_flag=True, help="Ask about the pairs, one after the other.")
@click.option("--limit", type=POSITIVE_COUNT, default=20, show_default=True, help="Maximum number of pairs.")
@YES
@PEOPLE
@OUTPUT
def review(
    *,
    ids: tuple[str, ...],
    answer: str | None,
    numbers: tuple[int, ...],
    asks: bool,
    limit: int,
    yes: bool,
    url: str,
) -> None:
    """List pairs that may be the same person, with the evidence; show a person's records; or answer.

    Until you answer, both are separate people. The answer is stored: a pair is listed once, and people that were split
    are never merged again, neither by similarity nor by keys.

    A pair is listed, however likely it is, if the evidence does not permit an automatic merge: for example, if only
    name and town are equal, or if a record fits two people.

    \b
    Examples:
      onceward review --people sqlite:///people.db
      onceward review p12 p7 --same
      onceward review p12 p9 --different
      onceward review p7                              its records, and why each was matched
      onceward review p7 --split                      undo a wrong merge: split by shared keys
      onceward review p7 --split --record 12          split off only this record
      onceward review --ask
    """
    _check_arguments(ids, answer, numbers)
    from onceward.people.stored_declaration import open_declared_people

    with open_declared_people(url) as people:
        if answer == "split":
            _split(people, ids[0], numbers, yes=yes)
        elif answer is not None:
            if answer == "same":
                preview = [line for id in ids for line in person_lines(people, id)]
                ask("Merge these two", preview, yes=yes)
            click.echo(_apply_answer(people, ids[0], ids[1], answer), err=True)
        elif ids:
            _print_person(get_person(people, ids[0]))
        elif asks:
            _ask_about_pairs(people, limit)
        else:
            _print_pairs(people.reviews(limit + 1), limit)
            _print_without_records(people.without_records(limit + 1), limit)


def _check_arguments(ids: tuple[str, ...], answer: str | None, numbers: tuple[int, ...]) -> None:
    if numbers and answer != "split":
        raise ConfigurationError("--record requires --split", hint="onceward review p7 --split --record 12")
    if answer == "split" and len(ids) != 1:
        raise ConfigurationError("--split takes one id", hint="onceward review p7 --split")
    pair = len(ids) > 1 or answer in ("same", "different")
    if pair and (len(ids) != 2 or answer is None):  # noqa: PLR2004 (a pair)
        raise ConfigurationError(
            "--same and --different take two ids", hint="onceward review p12 p7 --same (or --different)"
        )


def get_person(people: People, id: str) -> Person:
    person = people.get(id)
    if person is None:
        raise ConfigurationError(
            f"there is no person {id!r}",
            hint="`onceward people search name=…` finds ids; `onceward review` lists pairs",
        )
    return person


def _split(people: People, id: str, numbers: tuple[int, ...], *, yes: bool) -> None:
    ask("Split this person", person_lines(people, id), yes=yes)
    found = people.split(id, numbers)
    parts = [f"{one.id} ({', '.join(str(part.number) for part in one.contributions)})" for one in found]
    click.echo(f"{found[0].id} was split, by records: {', '.join(parts)}; they will not be merged again.", err=True)


def person_lines(people: People, id: str) -> list[str]:
    """Return a few lines about a person, as a preview."""
    person = get_person(people, id)
    more = len(person.contributions) - MAX_RECORDS_SHOWN
    sources = ", ".join(person.sources) or MISSING
    return [
        f"{person.id}: {len(person.contributions)} records of {sources}; {fields_text(person)}",
        *map(_contribution_line, person.contributions[:MAX_RECORDS_SHOWN]),
        *([f"  … {more} more"] if more > 0 else []),
    ]


def _contribution_line(part: Contribution) -> str:
    return f"  {part.number}  {part.source}  {part.rule} {part.confidence:.2f}  {fields_text(part)}"


def fields_text(part: Contribution | Person) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in sorted(part.fields.items()))


def _print_person(person: Person) -> None:
    if wants_json():
        display.print_json(
            person_json(person) | {"records": [contribution_json(part) for part in person.contributions]}
        )
        return
    click.echo(f"{person.id}: {len(person.contributions)} records")
    rows = [
        [str(part.number), part.source, part.rule, f"{part.confidence:.2f}", fields_text(part)]
        for part in person.contributions
    ]
    display.print_table(("RECORD", "SOURCE", "BY", "SURE", "SAYS"), rows, elastic=(1, 4))


def contribution_json(part: Contribution) -> dict[str, Any]:
    plain = {name: getattr(part, name) for name in ("number", "source", "record", "rule", "confidence")}
    return {**plain, "at": part.at.isoformat(), "fields": dict(part.fields)}


def _apply_answer(people: People, one: str, other: str, answer: str) -> str:
    if answer == "same":
        survivor = people.accept(one, other).id
        gone = other if survivor == one else one
        return (
            f"{gone} was merged into {survivor}." if gone != survivor else f"{one} and {other} are already {survivor}."
        )
    people.reject(one, other)
    return f"{one} and {other} stay separate."


def _print_without_records(found: list[Person], limit: int) -> None:
    """List people without records. They are not deleted, because other systems may refer to their ids."""
    if found:
        ids = ", ".join(one.id for one in found[:limit]) + (" and more" if len(found) > limit else "")
        click.echo(f"People without records, because these now belong to others: {ids}", err=True)


def _print_pairs(found: list[Review], limit: int) -> None:
    if wants_json():
        display.print_json([as_json(one) for one in found[:limit]])
    elif not found:
        click.echo("No pairs to review.", err=True)
    else:
        for one in found[:limit]:
            _print_pair(one)
        pair = f"{found[0].one.id} {found[0].other.id}"
        click.echo(
            f"To answer: onceward review {pair} --same (or --different); or use --ask to answer one by one.", err=True
        )
    if len(found) > limit:
        click.echo(f"There are more than these {limit}; use --limit to show more.", err=True)


def _ask_about_pairs(people: People, limit: int) -> None:
    if not sys.stdin.isatty():
        raise CommandError("--ask needs a terminal; use --same or --different instead", Exit.REFUSED)
    for one in people.reviews(limit):
        _print_pair(one)
        choice = click.prompt(
            "same person?", type=click.Choice(["same", "different", "later", "quit"]), default="later", err=True
        )
        if choice == "quit":
            return
        if choice != "later":
            click.echo(_apply_answer(people, one.one.id, one.other.id, choice), err=True)


def _print_pair(one: Review) -> None:
    rounded = f"{one.confidence:.0%}"
    likely = "over 99%" if rounded == "100%" else rounded  # it is not certain, so it is a question
    click.echo(f"{one.one.id} and {one.other.id}: {likely} likely the same person")
    rows = [
        [
            each.name,
            _text(each.one),
            _text(each.other),
            each.level or "",
            "" if each.weight is None else f"{each.weight:+.1f}",
        ]
        for each in one.fields()
    ]
    rows.append(["sources", ", ".join(one.one.sources), ", ".join(one.other.sources), "", ""])
    titles = ("FIELD", one.one.id, one.other.id, "COMPARED", "BITS")
    display.print_table(titles, rows, elastic=(1, 2))
    click.echo("")


def _text(value: Any) -> str:
    return MISSING if value is None else str(value)


def as_json(one: Review) -> dict[str, Any]:
    return {
        "one": person_json(one.one),
        "other": person_json(one.other),
        "confidence": one.confidence,
        "evidence": [evidence_json(each) for each in one.evidence],
        "source": one.source,
        "record": one.record,
        "asked_at": one.asked_at.isoformat(),
    }


def evidence_json(one: Any) -> dict[str, Any]:
    return {name: getattr(one, name) for name in ("field", "level", "here", "there", "weight")}


def person_json(person: Person) -> dict[str, Any]:
    return {"id": person.id, "fields": dict(person.fields), "sources": list(person.sources), "keys": list(person.keys)}
