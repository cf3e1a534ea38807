"""Errors for settings and functions that a client cannot use."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from onceward.errors import ConfigurationError
from onceward.operations.decorator import refuse_task
from onceward.operations.operation import label_of
from onceward.protocol.policy import Policy
from onceward.protocol.ports import Store

NOT_FOR_BLOCKS: dict[tuple[str, str | None], str] = {
    ("on_store_down", "run"): "if the store is down, entering raises StoreUnavailable",
    ("on_missing_key", "run"): "an empty key always raises MissingKey",
    ("on_done", "replay"): "a completed key raises AlreadyDone, with the result in `.value`",
    ("on_done", "skip"): "a completed key raises AlreadyDone, which you may suppress",
    ("on_running", "skip"): "a key that another worker is processing raises AlreadyRunning, which you may suppress",
    ("fingerprint", None): "its fingerprint is computed from payload=",
    ("store_input", None): "a recovery worker cannot run its body",
    ("max_input_bytes", None): "its input is not stored",
}
"""Settings (with a certain value, or with any) that a claim block would ignore, and what a block does instead."""


def refuse_async_find(policy: Policy, what: str) -> None:
    if inspect.iscoroutinefunction(policy.find):
        raise ConfigurationError(
            f"{what} is not async, so its verify cannot await {label_of(policy.find)}",
            hint="make find a sync function, or the work async",
        )


def refuse_skip(defaults: Mapping[str, Any]) -> None:
    for name in ("on_running", "on_done"):
        if defaults.get(name) == "skip":
            raise ConfigurationError(
                "skip makes calls return None, so it must be declared on the function itself",
                hint=f'@once({name}="skip")',
            )


def refuse_function_settings(settings: Mapping[str, Any]) -> None:
    """Raise for settings that only work for functions: a block would silently ignore them."""
    for name, value in settings.items():
        reason = NOT_FOR_BLOCKS.get((name, value if isinstance(value, str) else None)) or NOT_FOR_BLOCKS.get(
            (name, None)
        )
        if reason is not None:
            raise ConfigurationError(
                f"claim({name}={value!r}) has no effect: in a block, {reason}",
                hint="leave it out here; it works for decorated functions, run and map",
            )


def refuse_undecoratable(fn: Any) -> None:
    """Raise for objects that `@once` cannot decorate. `staticmethod` and `classmethod` hide the signature."""
    if isinstance(fn, staticmethod | classmethod):
        raise ConfigurationError(f"put @{type(fn).__name__} above @once, not below it")
    if not callable(fn):
        raise ConfigurationError(
            f"@once decorates functions, not {type(fn).__name__}",
            hint='pass the key by name: @once(key="charge:{order}")',
        )


def refuse_sync(fn: Any) -> None:
    """Raise for objects that `@once` of an AsyncOnce cannot decorate."""
    refuse_task(fn)
    refuse_undecoratable(fn)
    if not inspect.iscoroutinefunction(fn):
        raise ConfigurationError(
            f"AsyncOnce decorates async functions, but {fn!r} is not async", hint="make it async def, or use Once"
        )


def refuse_no_store(store: object) -> None:
    """Raise if the argument is neither a store URL nor a store object."""
    lacks = [] if store is None or isinstance(store, str) else _lacks(store)
    if store == "" or lacks:
        raise ConfigurationError(
            f"{store!r} is not a store",
            hint="pass a URL such as sqlite:///onceward.db, or a store object"
            + (f"; a store also needs {', '.join(lacks)}" if hasattr(store, "claim") else ""),
        )


def _lacks(store: object) -> list[str]:
    """Return which methods and attributes of a store this object lacks."""
    names = {*Store.__annotations__, *(name for name in vars(Store) if not name.startswith("_"))}
    return sorted(name for name in names if not hasattr(store, name))
