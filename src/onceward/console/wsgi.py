"""Mount the console in a WSGI application, such as Flask. It needs `a2wsgi`, which the extra `console` installs."""

from __future__ import annotations

from typing import Any

from onceward.client.sync import Once
from onceward.errors import ConfigurationError

from .app import Console


def wsgi_app(console: Console) -> Any:
    """Return a `console` as a WSGI application. Its requests run on one event loop in a thread of its own.

    Raises:
        ConfigurationError: The console uses an `AsyncOnce`, which belongs to the event loop of an application. Use
            `Once`.
    """
    from a2wsgi import ASGIMiddleware

    if not isinstance(console.once, Once):
        raise ConfigurationError(
            "a console in a WSGI application needs a Once, not an AsyncOnce", hint="Console(Once(store), …)"
        )
    application: Any = console  # a2wsgi describes ASGI with types of its own
    return ASGIMiddleware(application)
