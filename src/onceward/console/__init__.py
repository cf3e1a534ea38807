"""The console: see every key and act on it from a browser. It needs the extra `console`.

Read `app.py` first: `Console` is the ASGI application, and every request passes its `_answer`. `access.py` and
`auth.py` say who may do what. Each page is one file in `pages/`, registered by its `PAGE` (see `page.py`). Pages read
and change records through `onceward.administration`, like the command line. `serve.py` is what `onceward console`
runs; `wsgi.py` and `django.py` mount the console in other frameworks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceward.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from onceward.administration import Redaction

    from .access import Access, Level
    from .app import Console
    from .auth import BasicAuth, LoopbackOnly, TokenAuth
    from .page import Page
    from .table import Column, Empty, Table
    from .visit import Visit

__all__ = [
    "Access",
    "BasicAuth",
    "Column",
    "Console",
    "Empty",
    "Level",
    "LoopbackOnly",
    "Page",
    "Redaction",
    "Table",
    "TokenAuth",
    "Visit",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Access": ".access",
        "BasicAuth": ".auth",
        "Column": ".table",
        "Console": ".app",
        "Empty": ".table",
        "Level": ".access",
        "LoopbackOnly": ".auth",
        "Page": ".page",
        "Redaction": "onceward.administration",
        "Table": ".table",
        "TokenAuth": ".auth",
        "Visit": ".visit",
    },
)
