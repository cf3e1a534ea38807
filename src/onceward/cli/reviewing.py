"""`onceward review`: pairs of records that may be one person, and the answers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from onceward.errors import ConfigurationError

from . import display
from .codes import Exit
from .program import OUTPUT, Refusal, program, wants_json

if TYPE_CHECKING:  # its extra may be missing, and the other commands work without
    from onceward.identity import People, Person
    from onceward.identity.review import Review

PEOPLE = click.option(
    "--people",
    "url",
    metavar="URL",
    envvar="ONCEWARD_PEOPLE_URL",
    default="sqlite:///people.db",
    show_default=True,
    help="Where the people are; also $ONCEWARD_PEOPLE_URL.",
)
MISSING = "–"


@program.command()
@click.argument("pair", metavar="[ONE OTHER]", nargs=-1)
@click.option("--same", "answer", flag_value="same", help="ONE and OTHER are one person: merge them.")
@click.option("--different", "answer", flag_value="different", help="They are two: never ask again, never merge.")
@click.option("--ask", "asks", is_flag=True, help="Go through the pairs, one question each.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
@PEOPLE
@OUTPUT
def review(*, pair: tuple[str, ...], answer: str | None, asks: bool, limit: int, url: str) -> None:
    """List pairs that may be one person, with the evidence side by side; or answer.

    Each of the two is a person of its own until you answer. The answer is remembered: a pair is asked about once.

    \b
    Examples:
      onceward review --people sqlite:///people.db
      onceward review p12 p7 --same
      onceward review p12 p9 --different
      onceward review --ask
    """
    if answer is not None or pair:
        _checked(pair, answer)
    from onceward.identity.noted import noted_people

    with noted_people(url) as people:
        if answer is not None:
            click.echo(_answered(people, pair[0], pair[1], answer), err=True)
        elif asks:
            _ask(people, limit)
        else:
            _list(people.reviews(limit + 1), limit)


def _checked(pair: tuple[str, ...], answer: str | None) -> None:
    if len(pair) != 2 or answer is None:  # noqa: PLR2004 (a pair)
        raise ConfigurationError("an answer takes two ids", hint="onceward review p12 p7 --same (or --different)")


def _answered(people: People, one: str, other: str, answer: str) -> str:
    if answer == "same":
        survivor = people.accept(one, other).id
        gone = other if survivor == one else one
        return f"{gone} is {survivor} now." if gone != survivor else f"{one} and {other} are {survivor}."
    people.reject(one, other)
    return f"{one} and {other} are kept apart."


def _list(found: list[Review], limit: int) -> None:
    if wants_json():
        display.print_json([as_json(one) for one in found[:limit]])
    elif not found:
        click.echo("No pair waits for an answer.", err=True)
    else:
        for one in found[:limit]:
            _show(one)
    if len(found) > limit:
        click.echo(f"There are more than these {limit}; --limit shows more.", err=True)


def _ask(people: People, limit: int) -> None:
    if not sys.stdin.isatty():
        raise Refusal("--ask needs a terminal; answer with --same or --different", Exit.REFUSED)
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
