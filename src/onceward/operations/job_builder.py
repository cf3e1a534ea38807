"""Jobs and keys for the async face: made at once if that is quick, else in a worker thread, so that no loop waits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from onceward.engine.engine import AT_A_TIME
from onceward.engine.job import Job
from onceward.keys.key import Key
from onceward.keys.weight import are_light, is_light
from onceward.protocol.runtime import Runtime

from .decorator import Guarded
from .operation import Operation

if TYPE_CHECKING:
    from onceward.client.base import BaseClient


async def job_of(fn: Guarded[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
    """The job of a call of a decorated function."""
    if fn.operation.is_quick(args, kwargs):
        return fn.job(args, kwargs)
    return await fn.engine.runtime.think(fn.job, args, kwargs)


async def key_of(fn: Guarded[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Key:
    """The key of a call of a decorated function."""
    if fn.operation.is_quick(args, kwargs):
        return fn.key(*args, **kwargs)
    return await fn.engine.runtime.think(functools.partial(fn.key, *args, **kwargs))


async def job_under(client: BaseClient, key: Any, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
    """The job of a call under a given key."""
    if is_quick_call(key, fn, args, kwargs):
        return client.job(key, fn, args, kwargs)
    return await client.engine.runtime.think(client.job, key, fn, args, kwargs)


def is_quick_call(key: Any, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the job of this call is evidently made in no time."""
    if isinstance(fn, functools.partial):
        args, kwargs = (*args, fn.args), {**kwargs, "": fn.keywords}
    return is_quick(key) and are_light(args, kwargs)


async def given_key(client: BaseClient, key: Any, name: str | None) -> Key:
    """The key object for a key that was given."""
    if is_quick(key):
        return client.key(key, name=name)
    return await client.engine.runtime.think(functools.partial(client.key, key, name=name))


async def jobs_of(
    runtime: Runtime, items: Iterable[Any], operation: Operation, make: Callable[..., Job | Exception]
) -> list[Job | Exception]:
    """One job an item, or the error that it has none. Many small ones leave gaps for others, too."""
    jobs: list[Job | Exception] = []
    for item in items:
        quick = operation.is_quick((item,), {})
        jobs.append(make((item,), {}) if quick else await runtime.think(make, (item,), {}))
        if len(jobs) % AT_A_TIME == 0:
            await runtime.sleep(0)
    return jobs


def is_quick(key: Any) -> bool:
    """Whether a given key is evidently hashed in no time."""
    return isinstance(key, Key) or is_light(key)
