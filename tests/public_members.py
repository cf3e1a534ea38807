"""Which members of a public class applications may use. The reference shows them, and their docstrings are checked."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any, Protocol

from onceward.protocol.capabilities import JoinedStore
from onceward.protocol.ports import Store
from onceward.protocol.runtime import Runtime
from onceward.queues import Queue
from onceward.results import Cipher
from onceward.testing.history import Log

PORTS = (Store, JoinedStore, Queue, Runtime, Cipher, Log)
"""Protocols with several implementations. Each method is described once, at the protocol."""

INTERNAL: dict[str, tuple[str, ...]] = {
    "BaseClient": (
        "claim_job",
        "codec",
        "compile_operation",
        "declare",
        "job",
        "job_maker",
        "keep_input_of",
        "settings_for",
        "state_scope",
    ),
    "ClientControls": ("engine",),
    "BaseClaim": ("attempt",),
    "OncewardError": ("with_key",),
    "Outcome": ("with_reason",),
    "Replayed": ("already_done",),
    "Payload": ("__call__", "check", "select"),
    "_OneArgument": ("__call__", "check"),
    "Content": ("__call__",),
    "JsonKey": ("__call__",),
    "DeclaredSaga": ("saga_job",),
    "DeclaredSchedule": ("job", "runner"),
    "Operations": ("check", "of_file"),
    "Recovery": ("add", "add_redelivery", "count"),
    "BaseEndpoint": ("busy", "check_head", "handle", "refuse_head", "respond_to", "respond_to_checked", "too_large"),
    "RequestTransaction": ("hand_over", "request"),
    "Transaction": ("hand_over", "hand_over_response"),
    "Scheme": ("head_rejection", "rejection_reason"),
    "Response": ("can_be_sent",),
    "InboundRequest": ("without_body",),
    "Admin": ("group_records", "ready"),
    "ListingFilter": ("matches", "matches_scope", "only_unfinished"),
    "Preview": ("encode",),
    "Visible": ("includes", "narrow"),
    "People": ("declare", "ingest", "reading", "transaction"),
    "JoinedPeople": ("execute",),
    "MatchLevel": ("among_colleagues", "counted_evidence"),
    "Console": ("access_of", "set_cookie"),
    "TokenAuth": ("accepts", "session"),
    "LazyClient": ("configure",),
    "Layout": ("mark_paths", "paths", "state_paths"),
    "Table": ("others", "quoted"),
    "StoreFactory": ("pytest_generate_tests",),
    "HistoryChecks": ("run_history",),
    "RawChecks": ("assert_on_disk",),
    "CounterChecks": ("written",),
    "Score": ("count",),
}
"""Methods that only Onceward itself calls, by the class that defines them. They have no leading underscore because
other packages of Onceward call them."""

NOT_CREATED_BY_USERS = (
    "Claim",
    "AsyncClaim",
    "Entry",
    "SagaEntry",
    "Transaction",
    "LatestState",
    "AsyncLatestState",
    "Lock",
    "AsyncLock",
    "HeldLock",
    "AsyncHeldLock",
    "Objects",
    "Function",
    "AsyncFunction",
    "JoinedPeople",
    "MatchLevel",
    "Saga",
    "AsyncSaga",
    "StepContext",
    "Scheduled",
    "AsyncScheduled",
    "Visit",
    "SignatureData",
)
"""Classes whose objects applications receive from Onceward. The reference does not show how to create them."""


def members_of(cls: type) -> list[str]:
    """Return the members that the reference shows for this class.

    Members of a public base class are shown there. A class that implements a port shows only what it adds.
    """
    hidden = set[str]()
    for port in PORTS:
        if implements(cls, port):
            hidden |= set(dir(cls)) if port is Store else set(port_members(port))
    return [name for name in _own_members(cls) if name not in hidden]


def _own_members(cls: type) -> Iterator[str]:
    for name in sorted(one for one in dir(cls) if one == "__call__" or not one.startswith(("_", "test_"))):
        owner = next(base for base in cls.__mro__ if name in vars(base))
        if not owner.__module__.startswith("onceward"):
            continue
        if any(name in INTERNAL.get(base.__name__, ()) for base in cls.__mro__):
            continue
        if owner is not cls and any(owner in base.__mro__ for base in cls.__mro__[1:] if base in public_classes()):
            continue
        if isinstance(inspect.getattr_static(cls, name), property | staticmethod | classmethod) or inspect.isfunction(
            inspect.getattr_static(cls, name)
        ):
            yield name


def implements(cls: type, port: type) -> bool:
    """Return whether the class has all methods of the port. A protocol does not implement another one."""
    return Protocol not in cls.__bases__ and all(hasattr(cls, name) for name in port_members(port))


@cache
def port_members(port: type) -> tuple[str, ...]:
    names = (name for base in port.__mro__ if Protocol in base.__bases__ for name in vars(base))
    return tuple(
        name
        for name in names
        if not name.startswith("_") and isinstance(inspect.getattr_static(port, name), property | FUNCTION)
    )


@cache
def public_classes() -> frozenset[type]:
    """Return all classes that the reference shows."""
    from tests.public_api import MODULES, names_of

    named: Iterator[Any] = (
        getattr(module, name) for module in map(import_module, MODULES) for name in names_of(module)
    )
    return frozenset(value for value in named if inspect.isclass(value))


FUNCTION = type(implements)
