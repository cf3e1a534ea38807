"""Find the declared function that a record belongs to, and check the type that it declares for its result."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from onceward.errors import OncewardWarning
from onceward.keys.key import Scope
from onceward.operations.operation import Operation, result_annotation
from onceward.protocol.policy import Policy
from onceward.results.never_stored import never_stored


class DeclaredFunctions:
    """The operations of a client's decorated functions, by application and name. It does not keep them alive."""

    def __init__(self) -> None:
        self._operations: WeakValueDictionary[tuple[str, str], Operation] = WeakValueDictionary()

    def add(self, operation: Operation) -> None:
        self._operations[operation.scope.app, operation.scope.operation] = operation

    def find(self, scope: Scope) -> Operation | None:
        """Return the operation of this scope, whatever its tenant; None if no living function declares it."""
        return self._operations.get((scope.app, scope.operation))


def warn_if_never_stored(fn: Callable[..., Any], policy: Policy, label: str) -> None:
    """Warn if no result of this function can be stored: its duplicates would raise `ResultNotStored`."""
    cls = never_stored(result_annotation(fn)) if policy.store_result else None
    if cls is not None:
        warnings.warn(
            f"{label} declares that it returns {cls.__qualname__}, which cannot be stored: a duplicate call would "
            "raise ResultNotStored; return a dataclass, a dict or an id instead, or declare store_result=False",
            OncewardWarning,
            stacklevel=5,
        )
