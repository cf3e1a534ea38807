"""Run the console with uvicorn, as `onceward console` does."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

import uvicorn
from starlette.types import ASGIApp

from onceward.errors import ConfigurationError

from .access import Access, Authorize
from .auth import BasicAuth, LoopbackOnly, TokenAuth, is_loopback

TOKEN_VARIABLE = "ONCEWARD_CONSOLE_TOKEN"  # noqa: S105 (the name of a variable)
USER_VARIABLE = "ONCEWARD_CONSOLE_USER"


def authorize_from(environment: Mapping[str, str], host: str, user: str) -> Authorize:
    """Return the authentication that the environment configures. `user` is who the local visitor is."""
    token, pair = environment.get(TOKEN_VARIABLE, ""), environment.get(USER_VARIABLE, "")
    if token and pair:
        raise ConfigurationError(f"{TOKEN_VARIABLE} and {USER_VARIABLE} are both set", hint="unset one of them")
    if token:
        return TokenAuth(token)
    if pair:
        name, colon, password = pair.partition(":")
        if not colon or not name:
            raise ConfigurationError(f"{USER_VARIABLE} must be name:password", hint=f"{USER_VARIABLE}='ann:…'")
        return BasicAuth({name: password})
    if not is_loopback(host):
        raise ConfigurationError(
            f"other machines could reach the console on {host}, and no authentication is configured",
            hint=f"set {TOKEN_VARIABLE} or {USER_VARIABLE}=name:password, or use --host 127.0.0.1",
        )
    return LoopbackOnly(Access("admin", user=user))


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Port 0 means any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host} port {port}: {error.strerror or error}", hint="choose another --port"
        ) from error


def serve(console: ASGIApp, listening: socket.socket, on_start: Callable[[str], None]) -> None:
    """Serve until stopped by SIGINT or SIGTERM. `on_start` gets the address once requests are answered."""
    host, port = listening.getsockname()[:2]
    address = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
    # Without proxy_headers: the address of the client must be the real one, because access may depend on it.
    config = uvicorn.Config(console, log_level="warning", proxy_headers=False, server_header=False, lifespan="off")
    on_start(address)
    uvicorn.Server(config).run(sockets=[listening])
