"""Observability: events, logs, counters, alert rules, Prometheus and OpenTelemetry.

Read `rules.py` first: it defines which figures need attention. `log.py`, `prometheus.py` and `opentelemetry.py` each
export events in one format.
"""

from typing import TYPE_CHECKING

from onceward.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from onceward.engine.events import Event
    from onceward.protocol.audit import AuditEntry
    from onceward.protocol.counters import CounterTotals

    from .rules import Broken

if not TYPE_CHECKING:  # a type checker then knows exactly these names
    __getattr__ = lazy_exports(
        __name__,
        {
            "AuditEntry": "onceward.protocol.audit",
            "Broken": ".rules",
            "Event": "onceward.engine.events",
            "CounterTotals": "onceward.protocol.counters",
        },
    )

__all__ = ["AuditEntry", "Broken", "CounterTotals", "Event"]
