"""The block of `Idempotency.transaction` in FastAPI: its response follows the declaration of the route."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .starlette import Transaction as StarletteTransaction
from .statuses import WITHOUT_BODY

if TYPE_CHECKING:
    from fastapi import Response
    from pydantic import TypeAdapter


class Transaction(StarletteTransaction):
    """Commits the session together with the response."""

    def respond(
        self, content: Any = None, status_code: int | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Hand over the response: a `Response`, or content for a JSON response. Return the result from the endpoint.

        The route's `response_model` and `status_code` apply to content, as if the endpoint had returned it.
        """
        from fastapi import Response

        if isinstance(content, Response):
            return self.hand_over_response(content)
        route = self.request.get("route")
        status = status_code or getattr(route, "status_code", None) or 200
        chosen = None if headers is None else dict(headers)
        if content is None and status in WITHOUT_BODY:
            return self.hand_over_response(Response(None, status, chosen))
        body = _json(content, route)
        return self.hand_over_response(Response(body, status, chosen, media_type="application/json"))


def _json(content: Any, route: Any) -> bytes:
    model = getattr(route, "response_model", None)
    if model is None:
        from fastapi.encoders import jsonable_encoder
        from fastapi.responses import JSONResponse

        return bytes(JSONResponse(jsonable_encoder(content)).body)
    adapter = _adapter(model)
    return adapter.dump_json(
        adapter.validate_python(content, from_attributes=True),
        include=route.response_model_include,
        exclude=route.response_model_exclude,
        by_alias=route.response_model_by_alias,
        exclude_unset=route.response_model_exclude_unset,
        exclude_defaults=route.response_model_exclude_defaults,
        exclude_none=route.response_model_exclude_none,
    )


@lru_cache(maxsize=1024)
def _adapter(model: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(model)
