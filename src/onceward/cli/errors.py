"""Add hints to the errors of every command: how to pass a key such as -x, and what a scope looks like."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import click

from onceward.errors import StoreError
from onceward.operations.operation import VERSION_MARK
from onceward.protocol.hints import cli_command
from onceward.protocol.ports import Store
from onceward.runtime.threads import run

from .display import cut
from .exit_codes import Exit
from .open_store import SEARCH_TIMEOUT, opened_store

KEY_ARGUMENTS = ("key", "keys")
"""Arguments that are keys. Other arguments, such as a person's id, never begin with a dash."""

MAX_NAMED_SCOPES = 5  # scopes in one line
MAX_WIDTH = 80  # columns of the user's input in a message


class OncewardCommand(click.Command):
    """The base class of all commands. Help and errors explain how to pass a key that begins with a dash."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        if self.takes_keys:
            example = cli_command(self.name or "", "-x")
            self.epilog = f"Put a KEY that begins with a dash after -- and all options: {example}"

    @property
    def takes_keys(self) -> bool:
        return any(isinstance(one, click.Argument) and one.name in KEY_ARGUMENTS for one in self.params)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)  # the parser removes words
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            key = self._first_unknown_option(given) if self.takes_keys else None
            if key is None:
                raise
            example = cli_command(self.name or "", cut(key, MAX_WIDTH))
            raise click.UsageError(
                f"{error.format_message()} Put a key that begins with a dash after -- and all options: {example}",
                ctx,
            ) from None

    def _first_unknown_option(self, words: Sequence[str]) -> str | None:
        """Return the first word that begins with a dash and is not an option of this command."""
        known = {name for one in self.params for name in (*one.opts, *one.secondary_opts)} | {"-h", "--help"}
        before = words[: words.index("--")] if "--" in words else words
        return next((word for word in before if word[:1] == "-" and word.partition("=")[0] not in known), None)

    def invoke(self, ctx: click.Context) -> Any:
        from .program import CommandError, scope, store_url  # imported here: that module imports this one

        try:
            return super().invoke(ctx)
        except CommandError as error:
            if error.code is Exit.ABSENT and (wanted := scope()):
                raise CommandError(error.message + _scope_hint_suffix(store_url(), wanted), error.code) from None
            raise


def _scope_hint_suffix(url: str, wanted: str) -> str:
    try:
        with opened_store(url) as store:
            hint = scope_hint(store, wanted)
    except StoreError:  # report the error without the hint
        return ""
    return f" → {hint}" if hint else ""


def scope_hint(store: Store, wanted: str) -> str:
    """Explain what a scope looks like, and suggest scopes that end with `wanted`, or the most similar one.

    Empty if it may be a valid scope.
    """
    scopes = sorted({known for known, _ in run(store.counts(timeout=SEARCH_TIMEOUT))})
    if wanted in scopes:
        return ""
    similar = [known for known in scopes if _matches_end(known, wanted)] or get_close_matches(
        wanted, scopes, n=1, cutoff=0.8
    )
    if not similar and "/" in wanted:
        return ""  # it has the form of a scope, which may just have no records yet
    hint = f"there is no scope {cut(wanted, MAX_WIDTH)!r}; a scope is app/operation, or app/operation@tenant"
    more = f" and {len(similar) - MAX_NAMED_SCOPES} more" if len(similar) > MAX_NAMED_SCOPES else ""
    named = ", ".join(cut(one, MAX_WIDTH) for one in similar[:MAX_NAMED_SCOPES])
    return f"{hint}. Did you mean {named}{more}?" if similar else f"{hint} (onceward stats lists them)"


def _matches_end(known: str, wanted: str) -> bool:
    """Return whether the scope ends with `wanted`, with or without its tenant and version."""
    without_tenant = known.partition("@")[0]
    return any(
        one == wanted or one.endswith(f"/{wanted}")
        for one in (known, without_tenant, without_tenant.partition(VERSION_MARK)[0])
    )
