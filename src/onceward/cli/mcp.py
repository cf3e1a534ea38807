"""`onceward mcp`: let an assistant read the store, and with --write act on it, over the Model Context Protocol."""

from __future__ import annotations

import click

from onceward.client.sync import Once

from .open_store import existing_store
from .program import STORE, program, store_url
from .schedule import load_client


@program.command("mcp")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@click.option("--write", is_flag=True, help="Also offer the tools that change records.")
@click.option("--values", is_flag=True, help="Also show stored results and inputs, with secrets hidden.")
@STORE
def mcp(*, target: str | None, write: bool, values: bool) -> None:
    """Serve the Model Context Protocol on stdin and stdout, for an assistant that helps operators.

    Without --write, the tools only read. With it, a change is first previewed and then applied to exactly what was
    shown. Every change is written to the audit trail, with your user name and the reason that the assistant gives.

    MODULE:APP names the client of your application. It is needed only for its schedules and its cipher; without it, the
    store of --store is used.

    \b
    Examples:
      onceward mcp --store postgresql://shop@db/shop
      onceward mcp shop.jobs:once --write
    """
    from onceward.client.aio import AsyncOnce  # imported here: other commands need no event loop
    from onceward.mcp.server import build_server

    client = AsyncOnce(existing_store(store_url())) if target is None else load_client(target)
    once = client.aio if isinstance(client, Once) else client
    build_server(once, write=write, values=values).run("stdio")
