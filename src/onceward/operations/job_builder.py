"""Build jobs and keys for async clients: directly if that is quick, otherwise in a worker thread.

Hashing large arguments or reading a file on the event loop would block every other task.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from onceward.engine.engine import YIELD_EVERY
from onceward.engine.job import Job
from onceward.keys.key import Key
from onceward.keys.small import is_small
from onceward.protocol.runtime import Runtime

from .decorator import BaseFunction
from .operation import Operation

if TYPE_CHECKING:
    from onceward.client.base import BaseClient


async def job_of(fn: BaseFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
    """Return the job of a call of a decorated function."""
    if fn.operation.is_quick(args, kwargs):
        return fn.job(args, kwargs)
    return await fn.engine.runtime.compute(fn.job, args, kwargs)


async def key_of(fn: BaseFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Key:
    """Return the key of a call of a decorated function."""
    if fn.operation.is_quick(args, kwargs):
        return fn.key(*args, **kwargs)
    return await fn.engine.runtime.compute(functools.partial(fn.key, *args, **kwargs))


async def job_for_key(client: BaseClient, key: Any, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
    """Return the job of a call whose key the caller gives."""
    if is_quick_call(key, fn, args, kwargs):
        return client.job(key, fn, args, kwargs)
    return await client.engine.runtime.compute(client.job, key, fn, args, kwargs)


def is_quick_call(key: Any, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether the job of this call is certainly built quickly."""
    if isinstance(fn, functools.partial):
        args, kwargs = (*args, fn.args), {**kwargs, "": fn.keywords}
    return is_quick(key) and is_small((args, kwargs))


async def key_object(client: BaseClient, key: Any, name: str | None) -> Key:
    """Return the `Key` for a key that the caller gives."""
    if is_quick(key):
        return client.key(key, name=name)
    return await client.engine.runtime.compute(functools.partial(client.key, key, name=name))


async def jobs_of(
    runtime: Runtime, items: Iterable[Any], operation: Operation, make: Callable[..., Job | Exception]
) -> list[Job | Exception]:
    """Return a job for each item, or the error that building it raised. Yield to the event loop now and then."""
    jobs: list[Job | Exception] = []
    for item in items:
        quick = operation.is_quick((item,), {})
        jobs.append(make((item,), {}) if quick else await runtime.compute(make, (item,), {}))
        if len(jobs) % YIELD_EVERY == 0:
            await runtime.sleep(0)
    return jobs


def is_quick(key: Any) -> bool:
    """Return whether a given key is certainly hashed quickly."""
    return isinstance(key, Key) or is_small(key)
