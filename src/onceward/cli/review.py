"""`onceward review`: pairs of records that may be one person, and the answers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from onceward.errors import ConfigurationError

from . import display
from .confirm import YES, ask
from .exit_codes import Exit
from .program import HOW_MANY, OUTPUT, PEOPLE, CommandError, program, wants_json

if TYPE_CHECKING:  # its extra may be missing, and the other commands work without
    from onceward.people import Contribution, People, Person
    from onceward.people.review import Review

MISSING = "–"
MOST_TOLD = 20  # records of a person, before they change


@program.command()
@click.argument("ids", metavar="[ID [OTHER]]", nargs=-1)
@click.option("--same", "answer", flag_value="same", help="ID and OTHER are one person: merge them.")
@click.option("--different", "answer", flag_value="different", help="They are two: never ask again, never merge.")
@click.option("--split", "answer", flag_value="split", help="ID is several: take apart those who share no key.")
@click.option("--record", "numbers", type=int, multiple=True, help="With --split: just this leaves. May be repeated.")
@click.option("--ask", "asks", is_flag=True, help="Go through the pairs, one question each.")
@click.option("--limit", type=HOW_MANY, default=20, show_default=True, help="At most so many.")
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
    """List pairs that may be one person, with the evidence side by side; show a person's records; or answer.

    Each of the two is a person of its own until you answer. The answer is remembered: a pair is asked about once, and
    whoever was split is not merged again, by likeness or by keys.

    \b
    Examples:
      onceward review --people sqlite:///people.db
      onceward review p12 p7 --same
      onceward review p12 p9 --different
      onceward review p7                              its records, and why each is thought to be of it
      onceward review p7 --split                      a wrong merge: into those who share no key
      onceward review p7 --split --record 12          ... or just this record leaves
      onceward review --ask
    """
    _checked(ids, answer, numbers)
    from onceward.people.stored_declaration import noted_people

    with noted_people(url) as people:
        if answer == "split":
            _split(people, ids[0], numbers, yes=yes)
        elif answer is not None:
            if answer == "same":
                told = [_told(people, one) for one in ids]
                ask("Merge these two", [line for lines in told for line in lines], yes=yes)
            click.echo(_answered(people, ids[0], ids[1], answer), err=True)
        elif ids:
            _records(_found(people, ids[0]))
        elif asks:
            _ask(people, limit)
        else:
            _list(people.reviews(limit + 1), limit)
            _tell_of_nobody(people.without_records(limit + 1), limit)


def _checked(ids: tuple[str, ...], answer: str | None, numbers: tuple[int, ...]) -> None:
    if numbers and answer != "split":
        raise ConfigurationError("--record goes with --split", hint="onceward review p7 --split --record 12")
    if answer == "split" and len(ids) != 1:
        raise ConfigurationError("one person is split at a time", hint="onceward review p7 --split")
    pair = len(ids) > 1 or answer in ("same", "different")
    if pair and (len(ids) != 2 or answer is None):  # noqa: PLR2004 (a pair)
        raise ConfigurationError("an answer takes two ids", hint="onceward review p12 p7 --same (or --different)")


def _found(people: People, id: str) -> Person:
    person = people.get(id)
    if person is None:
        raise ConfigurationError(f"there is no person {id!r}", hint="`onceward review` lists the pairs")
    return person


def _split(people: People, id: str, numbers: tuple[int, ...], *, yes: bool) -> None:
    ask("Take this person apart", _told(people, id), yes=yes)
    found = people.split(id, numbers)
    parts = [f"{one.id} ({', '.join(str(part.number) for part in one.contributions)})" for one in found]
    click.echo(f"{found[0].id} was split, by records: {', '.join(parts)}; they are kept apart.", err=True)


def _told(people: People, id: str) -> list[str]:
    """A person in a few lines, before they change."""
    person = _found(people, id)
    fields = ", ".join(f"{name} {_shown(person, name)}" for name in sorted(person.fields))
    return [
        f"{person.id}: {len(person.contributions)} records of {', '.join(person.sources) or MISSING}; {fields}",
        *(_line(part) for part in person.contributions[:MOST_TOLD]),
        *([f"  … {len(person.contributions) - MOST_TOLD} more"] if len(person.contributions) > MOST_TOLD else []),
    ]


def _line(part: Contribution) -> str:
    fields = ", ".join(f"{name} {value}" for name, value in sorted(part.fields.items()))
    return f"  {part.number}  {part.source}  {part.rule} {part.confidence:.2f}  {fields}"


def _records(person: Person) -> None:
    if wants_json():
        display.print_json(_person(person) | {"records": [_contribution(part) for part in person.contributions]})
        return
    click.echo(f"{person.id}: {len(person.contributions)} records")
    rows = [
        [
            str(part.number),
            part.source,
            part.rule,
            f"{part.confidence:.2f}",
            ", ".join(f"{name} {value}" for name, value in sorted(part.fields.items())),
        ]
        for part in person.contributions
    ]
    display.table(("RECORD", "SOURCE", "BY", "SURE", "SAYS"), rows, elastic=(1, 4))


def _contribution(part: Contribution) -> dict[str, Any]:
    return {
        "number": part.number,
        "source": part.source,
        "record": part.record,
        "rule": part.rule,
        "confidence": part.confidence,
        "at": part.at.isoformat(),
        "fields": dict(part.fields),
    }


def _answered(people: People, one: str, other: str, answer: str) -> str:
    if answer == "same":
        survivor = people.accept(one, other).id
        gone = other if survivor == one else one
        return f"{gone} is {survivor} now." if gone != survivor else f"{one} and {other} are {survivor}."
    people.reject(one, other)
    return f"{one} and {other} are kept apart."


def _tell_of_nobody(found: list[Person], limit: int) -> None:
    """Whose records are of others by now: they are not deleted, for their ids may be written down somewhere."""
    if found:
        ids = ", ".join(one.id for one in found[:limit]) + (" and more" if len(found) > limit else "")
        click.echo(f"Without a record any more, because those are of somebody else by now: {ids}", err=True)


def _list(found: list[Review], limit: int) -> None:
    if wants_json():
        display.print_json([as_json(one) for one in found[:limit]])
    elif not found:
        click.echo("No pair waits for an answer.", err=True)
    else:
        for one in found[:limit]:
            _show(one)
        pair = f"{found[0].one.id} {found[0].other.id}"
        click.echo(
            f"To answer: onceward review {pair} --same (or --different); or --ask, one after the other.", err=True
        )
    if len(found) > limit:
        click.echo(f"There are more than these {limit}; --limit shows more.", err=True)


def _ask(people: People, limit: int) -> None:
    if not sys.stdin.isatty():
        raise CommandError("--ask needs a terminal; answer with --same or --different", Exit.REFUSED)
    for one in people.reviews(limit):
        _show(one)
        choice = click.prompt(
            "one person?", type=click.Choice(["same", "different", "later", "quit"]), default="later", err=True
        )
        if choice == "quit":
            return
        if choice != "later":
            click.echo(_answered(people, one.one.id, one.other.id, choice), err=True)


def _show(one: Review) -> None:
    click.echo(f"{one.one.id} and {one.other.id}: {one.confidence:.0%} sure to be one person")
    levels = {evidence.field: (evidence.level, f"{evidence.weight:+.1f}") for evidence in one.evidence}
    told = [name for name in levels if name not in one.one.fields and name not in one.other.fields]
    rows = [
        [name, _shown(one.one, name), _shown(one.other, name), *levels.get(name, ("", ""))]
        for name in dict.fromkeys([*levels, *sorted({*one.one.fields, *one.other.fields})])
        if name not in told
    ]
    compared = {evidence.field: evidence for evidence in one.evidence}
    rows += [[name, compared[name].there, compared[name].here, *levels[name]] for name in told]
    rows.append(["sources", ", ".join(one.one.sources), ", ".join(one.other.sources), "", ""])
    titles = ("FIELD", one.one.id, one.other.id, "COMPARED", "BITS")
    display.table(titles, rows, elastic=(1, 2))
    click.echo("")


def _shown(person: Person, name: str) -> str:
    value = person.fields.get(name, MISSING)
    return value if isinstance(value, str) else str(value)


def as_json(one: Review) -> dict[str, Any]:
    return {
        "one": _person(one.one),
        "other": _person(one.other),
        "confidence": one.confidence,
        "evidence": [
            {name: getattr(each, name) for name in ("field", "level", "here", "there", "weight")}
            for each in one.evidence
        ],
        "source": one.source,
        "record": one.record,
        "asked_at": one.asked_at.isoformat(),
    }


def _person(person: Person) -> dict[str, Any]:
    return {"id": person.id, "fields": dict(person.fields), "sources": list(person.sources), "keys": list(person.keys)}
