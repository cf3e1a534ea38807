"""`onceward migrate`: what the store's tables lack, as a list, as SQL for somebody else, or done."""

from __future__ import annotations

import click

from onceward.errors import VersionSkew
from onceward.protocol.capabilities import MigratesSchema, Schema
from onceward.runtime.bridge import run
from onceward.runtime.threads import ThreadRuntime
from onceward.stores.registry import open_store

from . import display
from .confirm import YES, ask
from .open_store import TIMEOUT
from .program import common, program, store_url, wants_json


@program.command()
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--sql", is_flag=True, help="Only print the statements, for whoever may execute them.")
@YES
@common
def migrate(*, dry_run: bool, sql: bool, yes: bool) -> None:
    """Make the store's tables, or bring older ones up to date.

    A migration only adds, so that an older Onceward goes on working beside a newer one. Programs that open a SQLite
    store migrate it by themselves; this is for those who want to see it first, or to have it done by somebody else.
    The tables of a PostgreSQL store are made and changed by nobody else, unless its URL says ?migrate=1.

    \b
    Examples:
      onceward migrate --dry-run
      onceward migrate --sql > add-audit.sql
      onceward migrate --yes
    """
    if dry_run and sql:
        raise click.UsageError("--dry-run tells people, --sql tells a database: say one of them")
    store = open_store(store_url())
    schema = run(store.schema(ThreadRuntime(), timeout=TIMEOUT)) if isinstance(store, MigratesSchema) else None
    refuse_newer(schema, store.name)
    if sql:
        click.echo(script(schema, store.name), nl=False)
        return
    pending = schema is not None and bool(schema.statements)
    if pending and not dry_run and isinstance(store, MigratesSchema):
        show(schema, store.name, err=True)
        ask(f"Execute these {len(schema.statements) if schema else 0} statements", [], yes=yes)
        run(store.migrate(ThreadRuntime()))
        schema = run(store.schema(ThreadRuntime(), timeout=TIMEOUT))
    if wants_json():
        display.print_json(as_json(schema, store.name, done=pending and not dry_run))
    elif pending and not dry_run:
        click.echo(f"migrated: {standing(schema)}")
    else:
        show(schema, store.name, err=False)


def refuse_newer(schema: Schema | None, name: str) -> None:
    """A newer schema is fine, unless it says that we must not touch it."""
    if schema is not None and schema.min_reader > schema.latest:
        raise VersionSkew(
            f"{name} has schema version {schema.version}; this Onceward supports {schema.latest} and must not use it",
            hint="upgrade Onceward here",
        )


def standing(schema: Schema | None) -> str:
    """The versions in one line."""
    if schema is None:
        return "this store has no schema"
    newer = " (a newer one was here, and lets us work beside it)" if schema.version > schema.latest else ""
    now = f"version {schema.version}" if schema.version else "no tables yet"
    return f"{now}{newer}; this Onceward writes version {schema.latest}"


def show(schema: Schema | None, name: str, *, err: bool) -> None:
    click.echo(display.cut(f"store   {name}", display.LONGEST_FACT), err=err)
    click.echo(f"schema  {standing(schema)}", err=err)
    if schema is None or not schema.statements:
        click.echo("There is nothing to do.", err=err)
        return
    click.echo(f"\n{written(schema)}\n", err=err)


def written(schema: Schema) -> str:
    return "\n\n".join(f"{statement};" for statement in schema.statements)


def script(schema: Schema | None, name: str) -> str:
    """For sqlite3, psql and their like: all or nothing."""
    head = f"-- {display.safe(name)}: {standing(schema)}\n"
    if schema is None or not schema.statements:
        return f"{head}-- There is nothing to do.\n"
    return f"{head}BEGIN;\n\n{written(schema)}\n\nCOMMIT;\n"


def as_json(schema: Schema | None, name: str, *, done: bool) -> dict[str, object]:
    return {
        "store": name,
        "version": schema.version if schema else None,
        "latest": schema.latest if schema else None,
        "min_reader": schema.min_reader if schema else None,
        "statements": list(schema.statements) if schema else [],
        "done": done,
    }
