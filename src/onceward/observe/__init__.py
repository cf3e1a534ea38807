"""Observability: events, logs, counters, alert rules, Prometheus and OpenTelemetry.

Read `rules.py` first: it defines which figures need attention. `log.py`, `prometheus.py` and `opentelemetry.py` each
export events in one format.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceward.engine.events import Event
    from onceward.protocol.audit import AuditEntry
    from onceward.protocol.counters import CounterTotals

    from .rules import Broken

_HOMES = {
    "AuditEntry": "onceward.protocol.audit",
    "Broken": ".rules",
    "Event": "onceward.engine.events",
    "CounterTotals": "onceward.protocol.counters",
}
"""Where each public name is defined. Imported on first use, so that `import onceward` stays fast."""


if not TYPE_CHECKING:  # a type checker then knows exactly these names

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(import_module(_HOMES[name], __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["AuditEntry", "Broken", "CounterTotals", "Event"]
