"""The minimum that one could reasonably write by hand on Redis: two scripts, called as in the docs of redis-py.

A lower bound, not an alternative: no fingerprints, result types, renewals or attempts, and no handling of crashes or
lost replies; the lease is the key's time to live. But it has an owner, and checks it before it writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from bench.bare import Busy, Work

CLAIM = """
if redis.call('SET', KEYS[1], 'P' .. ARGV[1], 'NX', 'PX', 600000) then return false end
return redis.call('GET', KEYS[1])
"""
COMPLETE = """
if redis.call('GET', KEYS[1]) ~= 'P' .. ARGV[1] then return 0 end
redis.call('SET', KEYS[1], 'D' .. ARGV[2], 'PX', 86400000)
return 1
"""

tokens = count(1)


def calling(client: Any, prefix: str, work: Work) -> Work:
    """Claim and complete, with one EVALSHA each."""
    claim, complete = client.script_load(CLAIM), client.script_load(COMPLETE)

    def call(key: str) -> str:
        name, token = prefix + key, str(next(tokens))
        found = client.evalsha(claim, 1, name, token)
        if found is not None:
            return _result(found, key)
        result = work(key)
        if client.evalsha(complete, 1, name, token, result) != 1:
            raise Busy(key)
        return result

    return call


async def awaiting(client: Any, prefix: str, work: Work) -> Callable[[str], Awaitable[str]]:
    """Do the same with `redis.asyncio`."""
    claim, complete = await client.script_load(CLAIM), await client.script_load(COMPLETE)

    async def call(key: str) -> str:
        name, token = prefix + key, str(next(tokens))
        found = await client.evalsha(claim, 1, name, token)
        if found is not None:
            return _result(found, key)
        result = work(key)
        if await client.evalsha(complete, 1, name, token, result) != 1:
            raise Busy(key)
        return result

    return call


def _result(found: bytes, key: str) -> str:
    if not found.startswith(b"D"):
        raise Busy(key)
    return found[1:].decode()
