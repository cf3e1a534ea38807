"""Find the declared function that a record belongs to, and with it the type of its result."""

from __future__ import annotations

from weakref import WeakValueDictionary

from onceward.keys.key import Scope
from onceward.operations.operation import Operation


class DeclaredFunctions:
    """The operations of a client's decorated functions, by application and name. It does not keep them alive."""

    def __init__(self) -> None:
        self._operations: WeakValueDictionary[tuple[str, str], Operation] = WeakValueDictionary()

    def add(self, operation: Operation) -> None:
        self._operations[operation.scope.app, operation.scope.operation] = operation

    def find(self, scope: Scope) -> Operation | None:
        """Return the operation of this scope, whatever its tenant; None if no living function declares it."""
        return self._operations.get((scope.app, scope.operation))
