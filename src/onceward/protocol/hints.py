"""What a person can type about a key. A hint that has to be completed before it works is half a hint."""

from __future__ import annotations


def cli_command(verb: str, key: str, *options: str) -> str:
    """The command for this key, as a shell and our own command take it: a key may begin like an option."""
    from shlex import quote  # not at the top: only refusals need it

    words = (*options, "--", quote(key)) if key.startswith("-") else (quote(key), *options)
    return " ".join(("onceward", verb, *words))


def resolve_hint(key: str) -> str:
    """How to say what became of it: the findings are alternatives."""
    return f"`{cli_command('resolve', key, '--applied')}`, --not-applied or --abandon"
