"""What every command says beyond its error: how a key like -x is written, and what a scope looks like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from onceward.errors import StoreError
from onceward.operations.operation import VERSION_MARK
from onceward.protocol.hints import cli_command
from onceward.protocol.ports import Store
from onceward.runtime.bridge import run

from .display import cut
from .exit_codes import Exit
from .open_store import SEARCH, opened

KEYS = ("key", "keys")
"""Arguments that are keys: others, such as a person's id, never begin with a dash."""

MOST_NAMED = 5  # scopes in one line
LONGEST = 80  # columns of what was typed


class FriendlyCommand(click.Command):
    """A command of ours. One that takes a KEY tells how a key is written that begins like an option."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        if self.takes_keys:
            example = cli_command(self.name or "", "-x")
            self.epilog = f"A KEY that begins with a dash is written behind --, after all options: {example}"

    @property
    def takes_keys(self) -> bool:
        return any(isinstance(one, click.Argument) and one.name in KEYS for one in self.params)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)  # the parser takes words away
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            key = self._like_an_option(given) if self.takes_keys else None
            if key is None:
                raise
            example = cli_command(self.name or "", cut(key, LONGEST))
            raise click.UsageError(
                f"{error.format_message()} A key that begins with a dash is written behind --, after all options: "
                f"{example}",
                ctx,
            ) from None

    def _like_an_option(self, words: Sequence[str]) -> str | None:
        """The first word that begins with a dash and is no option as it stands."""
        known = {name for one in self.params for name in (*one.opts, *one.secondary_opts)} | {"-h", "--help"}
        before = words[: words.index("--")] if "--" in words else words
        return next((word for word in before if word[:1] == "-" and word.partition("=")[0] not in known), None)

    def invoke(self, ctx: click.Context) -> Any:
        from .program import CommandError, scope, store_url  # which is made of commands like this

        try:
            return super().invoke(ctx)
        except CommandError as error:
            if error.code is Exit.ABSENT and (wanted := scope()):
                raise CommandError(error.message + _looked_up(store_url(), wanted), error.code) from None
            raise


def _looked_up(url: str, wanted: str) -> str:
    try:
        with opened(url) as store:
            said = about_scope(store, wanted)
    except StoreError:  # the refusal stands without it
        return ""
    return f" → {said}" if said else ""


def about_scope(store: Store, wanted: str) -> str:
    """What a scope looks like, and those that end with what was given. Empty if it may be one."""
    scopes = sorted({known for known, _ in run(store.counts(timeout=SEARCH))})
    if wanted in scopes:
        return ""
    alike = [known for known in scopes if _ends_like(known, wanted)]
    if not alike and "/" in wanted:
        return ""  # it has the form of one: perhaps nothing was done there yet
    said = f"there is no scope {cut(wanted, LONGEST)!r}; a scope is app/operation, or app/operation@tenant"
    more = f" and {len(alike) - MOST_NAMED} more" if len(alike) > MOST_NAMED else ""
    named = ", ".join(cut(one, LONGEST) for one in alike[:MOST_NAMED])
    return f"{said}. Did you mean {named}{more}?" if alike else f"{said} (onceward stats lists them)"


def _ends_like(known: str, wanted: str) -> bool:
    """With or without its tenant and its version."""
    of_all = known.partition("@")[0]
    return any(
        one == wanted or one.endswith(f"/{wanted}") for one in (known, of_all, of_all.partition(VERSION_MARK)[0])
    )
