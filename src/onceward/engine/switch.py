"""The off switch for tests: while it is set, work runs without claims. See `onceward.testing.disabled`."""

from __future__ import annotations

off: int = 0
