"""Onceward on a Python that lacks what Windows lacks: run as `python -m tests.integration.without_posix WORK …`.

Modules of the standard library are imported first: on Linux they need what is removed afterwards.
"""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import random
import select
import selectors
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_IMPORTED = (asyncio, getpass, logging, random, selectors, subprocess, tempfile, ThreadPoolExecutor)

MISSING_MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty")
MISSING: dict[Any, tuple[str, ...]] = {
    os: (
        *("fork", "forkpty", "register_at_fork", "posix_spawn", "posix_spawnp", "WNOHANG", "wait", "wait3", "wait4"),
        *("killpg", "setsid", "setpgid", "getpgid", "getpgrp", "getsid", "nice", "getpriority", "sched_yield"),
        *("getuid", "geteuid", "getgid", "getegid", "getresuid", "uname", "getloadavg", "sysconf", "statvfs"),
        *("chown", "fchown", "fchmod", "mkfifo", "pread", "pwrite", "fdatasync", "O_CLOEXEC", "O_DIRECTORY"),
    ),
    signal: (
        *("SIGKILL", "SIGHUP", "SIGQUIT", "SIGCHLD", "SIGSTOP", "SIGCONT", "SIGPIPE", "SIGALRM", "SIGUSR1", "SIGUSR2"),
        *("SIGXFSZ", "SIGTSTP", "alarm", "setitimer", "pause", "pthread_kill", "pthread_sigmask", "siginterrupt"),
    ),
    select: ("poll",),
}
LEASE = 1.5  # seconds


def remove() -> None:
    """Remove what Windows lacks from this process."""
    for module, names in MISSING.items():
        for name in names:
            delattr(module, name)
    for name in MISSING_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # importing it raises ImportError


def sync_work(url: str) -> None:
    from onceward import Once

    runs: list[Any] = []
    with Once(url) as once:

        @once(key="order:{number}")
        def charge(number: int) -> int:
            runs.append(number)
            return 2 * number

        assert [charge(1), charge(1), charge(2)] == [2, 2, 4]
        assert [one.value for one in once.map(charge.__wrapped__, [1, 2, 3], key="map:{number}")] == [2, 4, 6]
        assert runs == [1, 2, 1, 2, 3]
        with once.claim("block", lease=LEASE) as claim:
            time.sleep(1.2 * LEASE)  # only a heartbeat keeps the claim for that long
            claim.check()
            claim.complete("done")
        failing = once.using(retry_delay="1h")
        assert [failing.outcome("fails", fail).kind for _ in range(2)] == ["failed", "failed"]
        with once.lock("lock", lease=LEASE) as lock:
            time.sleep(1.2 * LEASE)
            lock.check()
        assert once.forget("fails", why="cleaning up")
        entry = once.read("block")
        assert entry is not None
        assert entry.value == "done"
        if url.startswith("sqlite:///"):
            join(once, url)


def fail() -> None:
    raise ZeroDivisionError


def join(once: Any, url: str) -> None:
    """Claim and complete in the caller's own transaction."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    for _ in range(2):
        with once.within(connection) as tx:
            assert tx.run("joined", len, [1, 2]) == 2
    connection.close()


async def async_work(url: str) -> None:
    from onceward import AsyncOnce

    runs: list[int] = []
    async with AsyncOnce(url) as once:

        @once(key="order:{number}")
        async def charge(number: int) -> int:
            runs.append(number)
            return 2 * number

        assert [await charge(1), await charge(1), await charge(2)] == [2, 2, 4]
        assert await asyncio.gather(*(charge(number) for number in (3, 3, 4))) == [6, 6, 8]
        assert sorted(runs) == [1, 2, 3, 4]
        async with once.claim("block", lease=LEASE) as claim:
            await asyncio.sleep(1.2 * LEASE)
            claim.check()
            await claim.complete(["x" * 100_000])
        entry = await once.read("block")
        assert entry is not None
        assert entry.value == ["x" * 100_000]
        async with once.lock("lock", lease=LEASE) as lock:
            await asyncio.sleep(1.2 * LEASE)
            lock.check()


def main(work: str, *words: str) -> int:
    remove()
    if work == "sync":
        sync_work(*words)
    elif work == "async":
        asyncio.run(async_work(*words))
    elif work == "cli":
        from onceward.cli import main as run_cli

        sys.argv[:] = ["onceward", *words]
        return run_cli()
    else:
        from onceward.testing.storm.program import main as run_storm

        return run_storm(words[0], words[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
