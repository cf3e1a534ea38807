"""Explain why `principal` does not find what another middleware should have set: it runs before that middleware."""

from __future__ import annotations

from typing import Any, Final

from onceward.errors import ConfigurationError

_SET_BY_MIDDLEWARES: Final = ("user", "auth", "session")
_HINT: Final = (
    "use idempotency.protect(app), which puts it inside of all others; with app.add_middleware, add the idempotency"
    " middleware first, because the one that was added last runs first"
)


def explain_middleware_order(error: Exception, scope: Any) -> Exception:
    """Return the error that explains a wrong order of middlewares; `error` itself if it has another reason."""
    text = str(error.args[0]) if error.args else ""
    missing = [name for name in _SET_BY_MIDDLEWARES if name not in scope]
    if isinstance(error, AssertionError):  # as `request.user` and `request.session` of Starlette
        missing = [name for name in missing if f"request.{name}" in text]
    else:
        missing = [name for name in missing if name == text]
    if not missing:
        return error
    return ConfigurationError(
        f"principal= needs scope[{missing[0]!r}], which no middleware has set before the idempotency middleware",
        hint=_HINT,
    )
