"""`onceward migrate`: list pending migrations of the store's tables, print them as SQL, or run them."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import click

from onceward.errors import StoreUnavailable, VersionSkew
from onceward.protocol.capabilities import Schema
from onceward.protocol.ports import Store
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.creation import DIALECTS, SCHEMES, creation_schema
from onceward.stores.registry import open_store, scheme_of

from . import display
from .confirm import YES, ask
from .open_store import TIMEOUT
from .program import common_options, program, store_url, wants_json


@program.command()
@click.option("--dry-run", is_flag=True, help="Only show what would be executed.")
@click.option("--sql", is_flag=True, help="Only print the SQL statements, to execute them elsewhere.")
@click.option(
    "--dialect",
    type=click.Choice(DIALECTS),
    help="With --sql: print the SQL for a new database, without connecting to one.",
)
@YES
@common_options
def migrate(*, dry_run: bool, sql: bool, dialect: str | None, yes: bool) -> None:
    """Create the store's tables, or migrate older ones.

    Migrations only add, so that an older Onceward keeps working beside a newer one. A SQLite store is migrated
    automatically when a program opens it; use this command to review the changes first, or to run them separately.
    Tables of a PostgreSQL store are created and changed only by this command, unless its URL contains ?migrate=1.

    With --sql, the statements depend on the version that the database has. If the server cannot be reached, or with
    --dialect, they are those for a new database; they fail and change nothing if the tables exist.

    \b
    Examples:
      onceward migrate --sql --dialect postgresql > create.sql
      onceward migrate --dry-run
      onceward migrate --sql > add-audit.sql
      onceward migrate --yes
    """
    if dry_run and sql:
        raise click.UsageError("--dry-run and --sql cannot be combined: choose one")
    if dialect is not None:
        if not sql:
            raise click.UsageError("--dialect needs --sql: without a database, there is nothing to migrate")
        click.echo(sql_script(new_database(dialect, store_url()), dialect), nl=False)
        return
    store = open_store(store_url())
    if sql and (offline := without_server(store)) is not None:
        click.echo(sql_script(offline, store.name), nl=False)
        return
    migrations = store.migrations
    schema = None if migrations is None else run(migrations.schema(ThreadRuntime(), timeout=TIMEOUT))
    raise_if_newer(schema, store.name)
    if sql:
        click.echo(sql_script(schema, store.name), nl=False)
        return
    pending = schema is not None and bool(schema.statements)
    if pending and not dry_run and migrations is not None:
        print_schema(schema, store.name, err=True, statements=not yes)
        ask(f"Execute these {len(schema.statements) if schema else 0} statements", [], yes=yes)
        run(migrations.migrate(ThreadRuntime()))
        schema = run(migrations.schema(ThreadRuntime(), timeout=TIMEOUT))
    if wants_json():
        display.print_json(as_json(schema, store.name, done=pending and not dry_run))
    elif pending and not dry_run:
        click.echo(f"migrated: {version_text(schema)}")
    else:
        print_schema(schema, store.name, err=False)


def new_database(dialect: str, url: str) -> Schema:
    """Return what creates the tables in a new database. If the URL has the same dialect, use its schema."""
    same = dialect == "postgresql" == SCHEMES.get(scheme_of(url))
    return creation_schema(dialect, dict(parse_qsl(urlsplit(url).query)).get("schema", "") if same else "")


def without_server(store: Store) -> Schema | None:
    """Return what creates the tables if the store's server cannot be reached. None: it was reached."""
    dialect = SCHEMES.get(scheme_of(store_url()))
    if store.migrations is None or dialect is None:
        return None
    try:
        run(store.migrations.schema(ThreadRuntime(), timeout=TIMEOUT))
    except StoreUnavailable as error:
        click.echo(f"{error}\nThese are the statements for a new database.", err=True)
        return new_database(dialect, store_url())
    return None


def raise_if_newer(schema: Schema | None, name: str) -> None:
    """Raise if the schema is newer and does not support this version. Compatible newer schemas are fine."""
    if schema is not None and schema.min_reader > schema.latest:
        raise VersionSkew(
            f"{name} has schema version {schema.version}; this Onceward supports {schema.latest} and must not use it",
            hint="upgrade Onceward here",
        )


def version_text(schema: Schema | None) -> str:
    """Return the versions in one line."""
    if schema is None:
        return "this store has no schema"
    newer = " (newer than this Onceward, but compatible)" if schema.version > schema.latest else ""
    now = f"version {schema.version}" if schema.version else "no tables yet"
    return f"{now}{newer}; this Onceward writes version {schema.latest}"


def print_schema(schema: Schema | None, name: str, *, err: bool, statements: bool = True) -> None:
    click.echo(display.cut(f"store   {name}", display.MAX_LINE_WIDTH), err=err)
    click.echo(f"schema  {version_text(schema)}", err=err)
    if schema is None or not schema.statements:
        click.echo("There is nothing to do.", err=err)
        return
    if statements:
        click.echo(f"\n{statements_text(schema)}\n", err=err)
    else:
        click.echo(f"{len(schema.statements)} statements, which --dry-run shows", err=err)


def statements_text(schema: Schema) -> str:
    return "\n\n".join(f"{statement};" for statement in schema.statements)


def sql_script(schema: Schema | None, name: str) -> str:
    """Return a script for sqlite3, psql and similar tools, in one transaction."""
    head = f"-- {display.safe(name)}: {version_text(schema)}\n"
    if schema is None or not schema.statements:
        return f"{head}-- There is nothing to do.\n"
    return f"{head}BEGIN;\n\n{statements_text(schema)}\n\nCOMMIT;\n"


def as_json(schema: Schema | None, name: str, *, done: bool) -> dict[str, object]:
    return {
        "store": name,
        "version": schema.version if schema else None,
        "latest": schema.latest if schema else None,
        "min_reader": schema.min_reader if schema else None,
        "statements": list(schema.statements) if schema else [],
        "done": done,
    }
