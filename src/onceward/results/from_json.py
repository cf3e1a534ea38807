"""Read a result of a declared type from JSON, as an operator types it."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from onceward.errors import ConfigurationError

from .declared import declared_shapes


def result_from_json(text: str, annotation: Any) -> Any:
    """Return the value that the JSON text describes. Raise ConfigurationError if it is not of the declared type."""
    try:
        if _has_pydantic_model(annotation):
            from pydantic import TypeAdapter  # the program has imported it

            return TypeAdapter(annotation).validate_json(text)
        return msgspec.json.decode(text, type=annotation)
    except TypeError as error:  # msgspec cannot read this type
        raise ConfigurationError(
            f"a result of the declared type {_name(annotation)} cannot be read from JSON: {error}",
            hint="resolve it in Python: fn.resolve(applied(value), …)",
        ) from None
    except ValueError as error:  # of msgspec and pydantic
        raise ConfigurationError(
            f"the JSON is not a {_name(annotation)}, the declared type of the result: {error}",
            hint="nothing was changed; pass JSON of that type, with every field if it has fields",
        ) from None


def _has_pydantic_model(annotation: Any) -> bool:
    base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return base is not None and any(issubclass(one.cls, base) for one in declared_shapes(annotation).values())


def _name(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
