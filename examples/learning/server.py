"""The statement resource as a service: `python -m examples.learning serve`."""

from __future__ import annotations

import argparse

from examples.learning.endpoint import Statements
from examples.learning.records import Learning
from examples.learning.storage import open_storage
from examples.learning.unguarded import UnguardedLearning
from examples.service import server


def serve(chosen: argparse.Namespace) -> None:
    """Serve until stopped."""
    kind = UnguardedLearning if chosen.unguarded else Learning
    users = dict([chosen.user.split(":", 1)])
    with open_storage(chosen.folder, chosen.warehouse, kind) as storage:
        server.serve(server.as_asgi(Statements(storage.learning, users)), storage.once, chosen)
