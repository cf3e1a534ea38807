"""The operations that a client has declared, to compare them with earlier deployments before the next call."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from onceward.engine.engine import Engine
from onceward.errors import OncewardError
from onceward.keys.key import Scope
from onceward.keys.template import FirstOf, Template
from onceward.operations.operation import Operation
from onceward.protocol.policy import Policy
from onceward.protocol.ports import Store

MAX_COMPARED: Final = 8
"""How many declarations of one scope are compared in one process. More of them do not come from deployments."""


class DeclaredOperations:
    """The operations of a client that have not been compared yet."""

    def __init__(self) -> None:
        self._operations: dict[Scope, Operation] = {}
        self._compared: dict[Scope, list[tuple[Policy, str]]] = {}

    def add(self, operation: Operation) -> bool:
        """Add the operation. Return False if it is known: some programs decorate functions anew for each request."""
        known = self._compared.get(operation.scope, [])
        if len(known) >= MAX_COMPARED or _settings_of(operation) in known:
            return False
        self._operations[operation.scope] = operation
        return True

    async def compare(self, store: Store) -> None:
        """Compare once with the stored declarations. If the store does not respond in time, skip the comparison."""
        operations, self._operations = self._operations, {}
        for scope, operation in operations.items():
            self._compared.setdefault(scope, []).append(_settings_of(operation))
        if not operations or store.inline or store.latest is None:
            return
        from .compare_declarations import compare  # imported only if it is used

        with suppress(OncewardError):
            await compare(store, store.latest, list(operations.values()))


def _settings_of(operation: Operation) -> tuple[Policy, str]:
    """Return the policy and the key template. Other key sources may be new objects each time, so they do not count."""
    return operation.policy, template_text(operation) or ""


def template_text(operation: Operation, *, by_position: bool = False) -> str | None:
    """Return the key template, with the names or the positions of its parameters; None if the key has another source.

    A text without fields may be an f-string, which has another value each time: all of those count as one.
    """
    source = operation.source
    templates = source.templates if isinstance(source, FirstOf) else (source,)
    names = operation.binding.names if by_position else ()
    texts = []
    for one in templates:
        if not isinstance(one, Template):
            return None
        texts.append(one.canonical_text(names) if one.has_fields else "a text without fields")
    return " or ".join(texts)


class DeclaringEngine(Engine):
    """An engine that compares declarations when it opens the store. It compares later ones before the next call."""

    declared: DeclaredOperations

    def declare(self, operation: Operation) -> None:
        if self.declared.add(operation):
            self.prepared = False

    async def prepare(self) -> None:
        await self.declared.compare(self.store)
