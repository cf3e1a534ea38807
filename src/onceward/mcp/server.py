"""Build the server: read-only tools, and with `write` the tools that change records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from onceward._version import __version__
from onceward.administration.admin import Admin
from onceward.errors import MissingExtra, OncewardError
from onceward.protocol.secrets import text_without_secrets

from .changing import ChangingTools
from .data import UNTRUSTED
from .reading import ReadingTools

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from onceward.client.aio import AsyncOnce

INSTRUCTIONS = f"""Onceward records which work was done, once per key. These tools read its store.
Start with `overview`, then `list_failures` and `list_parked`. {UNTRUSTED}
A record's id has 64 hexadecimal digits; pass it whole."""

CHANGES = """Changes are made in two steps: `preview_action` shows what would change, then `apply_preview` changes
exactly that. Show the preview to a person and ask before you apply it."""


def build_server(once: AsyncOnce, *, write: bool = False, values: bool = False, who: str | None = None) -> MCPServer:
    """Return the server for a client. `values` includes stored results and inputs, with secrets hidden."""
    try:
        from mcp.server import MCPServer
    except ImportError as error:
        raise MissingExtra("the MCP server needs the mcp package", hint='pip install "onceward[mcp]"') from error
    admin = Admin.of(once, who=who)

    @asynccontextmanager
    async def lifespan(_: MCPServer) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await once.close()

    server = MCPServer(
        "onceward",
        title="Onceward",
        version=__version__,
        instructions=f"{INSTRUCTIONS}\n{CHANGES}" if write else INSTRUCTIONS,
        log_level="WARNING",
        lifespan=lifespan,
    )
    _add_tools(server, ReadingTools(admin, values=values), read_only=True)
    if write:
        _add_tools(server, ChangingTools(admin), read_only=False)
    return server


def _add_tools(server: MCPServer, tools: object, *, read_only: bool) -> None:
    from mcp.types import ToolAnnotations

    for name in (one for one in dir(tools) if not one.startswith("_")):
        changes = not read_only and not name.startswith("preview")
        annotations = ToolAnnotations(read_only_hint=not changes, destructive_hint=changes, open_world_hint=False)
        server.add_tool(_reported(getattr(tools, name)), name=name, annotations=annotations, structured_output=False)


def _reported(tool: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
    """Turn our errors into the tool's answer, without passwords."""
    from mcp.server.mcpserver.exceptions import ToolError

    @wraps(tool)
    async def call(*args: Any, **kwargs: Any) -> str:
        try:
            return await tool(*args, **kwargs)
        except OncewardError as error:
            raise ToolError(text_without_secrets(str(error))) from None

    return call
