"""Which scopes and tenants an operator may see and change."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from onceward.protocol.listing import ListingFilter


class Visible(Struct, frozen=True):
    """The `scopes` and `tenants` that an operator is limited to. Empty means all; both must match.

    A scope without a tenant (`shop/charge`) includes all tenants of the operation.
    """

    scopes: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether nothing is hidden from this operator."""
        return not self.scopes and not self.tenants

    def includes(self, scope: str) -> bool:
        """Return whether records of this scope are visible."""
        return ListingFilter(scopes=self.scopes, tenants=self.tenants).matches_scope(scope)

    def narrow(self, wanted: ListingFilter) -> ListingFilter | None:
        """Return the filter limited to what is visible; None if nothing can match."""
        scopes, tenants = _common(wanted.scopes, self.scopes), _common(wanted.tenants, self.tenants)
        if scopes is None or tenants is None:
            return None
        return replace(wanted, scopes=scopes, tenants=tenants)


ALL = Visible()
"""An operator without limits."""


def _common(wanted: tuple[str, ...], allowed: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return what is both wanted and allowed; None if there is nothing. Empty means all."""
    if not wanted or not allowed:
        return wanted or allowed
    both = {one for one in wanted if one in allowed or one.partition("@")[0] in allowed}
    both |= {one for one in allowed if one.partition("@")[0] in wanted}
    return tuple(sorted(both)) or None
