"""The operations that a client has declared, to compare them with earlier deployments before the next call."""

from __future__ import annotations

from contextlib import suppress

from onceward.engine.engine import Engine
from onceward.errors import OncewardError
from onceward.keys.key import Scope
from onceward.operations.operation import Operation
from onceward.protocol.policy import Policy
from onceward.protocol.ports import Store


class DeclaredOperations:
    """The operations of a client that have not been compared yet."""

    def __init__(self) -> None:
        self._operations: dict[Scope, Operation] = {}
        self._compared: dict[Scope, Policy] = {}

    def add(self, operation: Operation) -> bool:
        """Add the operation. Return False if it is known: some programs decorate a function anew for each request."""
        if self._compared.get(operation.scope) == operation.policy:
            return False
        self._operations[operation.scope] = operation
        return True

    async def compare(self, store: Store) -> None:
        """Compare once with the stored declarations. If the store does not respond in time, skip the comparison."""
        operations, self._operations = self._operations, {}
        self._compared |= {scope: operation.policy for scope, operation in operations.items()}
        if not operations or store.inline or store.latest is None:
            return
        from .compare_declarations import compare  # imported only if it is used

        with suppress(OncewardError):
            await compare(store, store.latest, list(operations.values()))


class DeclaringEngine(Engine):
    """An engine that compares declarations when it opens the store. It compares later ones before the next call."""

    declared: DeclaredOperations

    def declare(self, operation: Operation) -> None:
        if self.declared.add(operation):
            self.prepared = False

    async def prepare(self) -> None:
        await self.declared.compare(self.store)
