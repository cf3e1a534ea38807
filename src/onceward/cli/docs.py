"""`onceward docs`: print an explanation from the documentation, from the installed package."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

import click

from onceward.errors import DOCS_URL
from onceward.observe.monitoring_files import runbooks
from onceward.protocol.suggest import did_you_mean

from . import display
from .exit_codes import Exit
from .program import OUTPUT, CommandError, program, wants_json

_ERROR = re.compile(r"^\| `(?P<name>\w+)` \| `(?P<code>\w+)` \| (?P<status>\d+) \| (?P<text>.+) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


class Section(NamedTuple):
    """A part of a page: where it is on the site, and its text."""

    address: str
    text: str


@program.command("docs")
@click.argument("topic", required=False)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser, if the documentation is published.")
@OUTPUT
def docs(topic: str | None, *, opens: bool) -> None:
    """Explain an error or an alert: what it means and what to do. Without TOPIC, list the topics.

    \b
    Examples:
      onceward docs
      onceward docs errors#lease-lost
      onceward docs runbooks#parked
    """
    known = sections()
    if topic is None:
        _print_topics(list(known))
        return
    name = topic.lower().replace("_", "-")
    if name not in known:
        raise CommandError(f"there is no topic {topic!r} → {did_you_mean(name, known, 'topics are')}", Exit.ABSENT)
    section = known[name]
    if opens and DOCS_URL:
        click.launch(DOCS_URL + section.address)
    if wants_json():
        display.print_json(
            {"topic": name, "url": DOCS_URL + section.address if DOCS_URL else None, "text": section.text}
        )
    else:
        click.echo(section.text)
        if DOCS_URL:
            click.echo(f"\n{DOCS_URL}{section.address}")


def _print_topics(topics: list[str]) -> None:
    if wants_json():
        display.print_json(topics)
    else:
        click.echo("\n".join(topics))


def sections() -> dict[str, Section]:
    """Return the explanations by topic: each error, then each runbook."""
    page = files("onceward.cli").joinpath("pages", "errors.md").read_text(encoding="utf-8")
    found = {}
    for row in _ERROR.finditer(page):
        anchor = row["code"].replace("_", "-")
        text = _LINK.sub(r"\1", row["text"])
        found[f"errors#{anchor}"] = Section(
            f"howto/errors.html#{anchor}",
            f"{row['name']} (code {row['code']}, HTTP status {row['status']})\n\n{text[0].upper()}{text[1:]}.",
        )
    for name, text in runbooks().items():
        found[f"runbooks#{name}"] = Section(f"howto/runbooks.html#{name}", f"{name}\n\n{text}")
    return found
