"""`onceward console`: see every key and act on it, from a browser."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from onceward.client.audit_identity import user_and_host
from onceward.client.sync import Once

from .exit_codes import Exit
from .open_store import existing_store
from .program import STORE, CommandError, program, store_url
from .schedule import load_client

if TYPE_CHECKING:  # optional dependencies: other commands work without them
    from onceward.people import People


@program.command("console")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8321, show_default=True, help="0: any free port.")
@click.option("--write", is_flag=True, help="Allow changes. Without it, the console is read-only.")
@click.option("--title", default="Onceward", help="Name in the header, such as the environment.")
@click.option("--people", "people_url", metavar="URL", help="Database of people, for reviews and imports.")
@STORE
def console(*, target: str | None, host: str, port: int, write: bool, title: str, people_url: str | None) -> int:
    """Show records, parked work, failures and schedules in a browser.

    It is read-only unless --write is given, and answers only this machine. To open it to others, configure an
    authentication: $ONCEWARD_CONSOLE_TOKEN, or $ONCEWARD_CONSOLE_USER=name:password, and then --host.

    MODULE:APP names your client, so that its schedules and encrypted results are known. Without it, the console uses
    the --store.

    \b
    Examples:
      onceward console
      onceward console shop.jobs:once --write
      ONCEWARD_CONSOLE_TOKEN=… onceward console --host 0.0.0.0
    """
    try:
        from onceward.console.app import Console
        from onceward.console.serve import authorize_from, listen, serve
    except ImportError as error:
        raise CommandError(f"the console needs {error.name} → pip install 'onceward[console]'", Exit.USAGE) from error
    authorize = authorize_from(os.environ, host, user_and_host())
    with ExitStack() as stack:
        once: Any = load_client(target) if target else Once(existing_store(store_url()))
        if isinstance(once, Once):
            stack.callback(once.close)
        app = Console(once, authorize=authorize, write=write, title=title, people=_people(people_url, stack))
        listening = stack.enter_context(listen(host, port))
        serve(app, listening, lambda address: _print_start(address, write=write))
    return Exit.OK


def _people(url: str | None, stack: ExitStack) -> People | None:
    if url is None:
        return None
    from onceward.people.stored_declaration import open_declared_people

    return stack.enter_context(open_declared_people(url))


def _print_start(address: str, *, write: bool) -> None:
    mode = "changes are allowed" if write else "read-only; --write allows changes"
    click.echo(f"onceward console: {address} ({mode}); Ctrl-C stops it")
