"""Hints that contain a complete command for a key, ready to paste into a shell."""

from __future__ import annotations


class Commands:
    """What hints tell the reader to run. An integration with its own command, such as Django's, replaces them."""

    program = "onceward"
    migrate: str | None = None  # None: `onceward migrate` with the store


commands = Commands()


def cli_command(verb: str, key: str, *options: str) -> str:
    """Return the command for this key, quoted for a shell. A key that starts with `-` goes after `--`."""
    from shlex import quote  # imported here, because only error messages need it

    words = (*options, "--", quote(key)) if key.startswith("-") else (quote(key), *options)
    return " ".join((commands.program, verb, *words))


def resolve_hint(key: str) -> str:
    """Return the command that resolves a key, with its alternative options."""
    return f"`{cli_command('resolve', key, '--applied')}`, --not-applied or --abandon"


def migrate_hint(store: str) -> str:
    """Return the command that creates or migrates the tables of this store. `store` is its name, without a password."""
    if commands.migrate is not None:
        return f"run `{commands.migrate}`"
    from shlex import quote

    return f"run `onceward migrate --store {quote(store)}`" + (
        " (with the password, if it needs one)" if "://" in store and "@" in store else ""
    )
