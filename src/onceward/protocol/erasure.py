"""Which data an erasure deletes: by tenant, by scope, by key, or by key prefix."""

from __future__ import annotations

from msgspec import Struct

from .message_note import MESSAGE_SUFFIX


class ErasureFilter(Struct, frozen=True):
    """What to erase. At least one field is set; all that are set must match. Texts are compared as they are displayed.

    A scope includes the records of its parked messages. A tenant includes all applications and operations.
    """

    tenant: str | None = None
    scope: str | None = None
    prefix: str | None = None
    key: str | None = None

    def selects_scope(self, scope: str) -> bool:
        operation, _, tenant = scope.partition("@")
        if self.tenant is not None and tenant != self.tenant:
            return False
        if self.scope is None or scope == self.scope:
            return True
        wanted, at, of_tenant = self.scope.partition("@")
        return scope == f"{wanted}{MESSAGE_SUFFIX}{at}{of_tenant}" and operation.endswith(MESSAGE_SUFFIX)

    def selects(self, scope: str, key: str) -> bool:
        if self.key is not None and key != self.key:
            return False
        return self.selects_scope(scope) and (self.prefix is None or key.startswith(self.prefix))


class FoundEntity(Struct, frozen=True):
    """An entity whose latest state is to be erased. If the state is not `readable`, its scope and name are unknown."""

    id: bytes
    scope: str
    entity: str
    readable: bool = True
