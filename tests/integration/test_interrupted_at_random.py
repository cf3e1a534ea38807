"""KeyboardInterrupt at random moments of calls: it is like a crash of that call, and of no other.

No wrong result, no lost result that was acknowledged, no reply to another call, no thread that hangs, and no key that
stays locked for longer than its lease while the process lives.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from tests.integration.store_urls import url

__all__ = ["url"]  # a fixture, listed here so that pytest finds it

SET_UP = """
    import random, signal, sys, threading, time
    from collections import Counter
    from onceward import Once
    from onceward.errors import AlreadyRunning

    once = Once(sys.argv[1], lease="3s", fingerprint="none", retry_delay=0)
    effects = Counter()

    def work(key):
        effects[key] += 1
        return f"result of {key}"

    def interrupt(*_):
        raise KeyboardInterrupt

    def is_interrupt(error):
        "An interrupt during a settlement may come out as another error, with the interrupt as its context."
        while error is not None and not isinstance(error, KeyboardInterrupt):
            error = error.__cause__ or error.__context__
        return error is not None

    def interrupted_at_random(call, *arguments):
        "Return what the call returns; None if it was interrupted."
        global longest
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, longest))
                value = call(*arguments)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except BaseException as error:
            if not is_interrupt(error):
                raise
            longest *= 1.05
            return None
        longest *= 0.95
        return value

    once.run("first", work, "first")
    longest = 1e-3  # adapts itself, so that about half of the calls are interrupted
    signal.signal(signal.SIGALRM, interrupt)
"""

CALLS = """
    def block(key):
        with once.claim(key) as claim:
            value = work(key)
            claim.complete(value)
        return value

    def run(key):
        return once.run(key, work, key)

    def bulk(key):
        return once.map(work, [key, key + "+"], key="{key}", name="shared")[0].unwrap()

    stopping = threading.Event()
    trouble = []

    def undisturbed(name):
        turn = 0
        try:
            while not stopping.is_set():
                key = f"{name}/{turn}"
                assert once.run(key, work, key) == f"result of {key}"
                turn += 1
        except BaseException as error:
            trouble.append(error)
            raise

    threads = [threading.Thread(target=undisturbed, args=(name,), daemon=True) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    acknowledged, interrupted = set(), set()
    ends = time.monotonic() + 60
    number = 0
    while min(len(acknowledged), len(interrupted)) < 100 and time.monotonic() < ends:
        number += 1
        key = f"main {number}"
        value = interrupted_at_random((run, block, bulk)[number % 3], key)
        assert value in (None, f"result of {key}"), (key, value)
        (interrupted if value is None else acknowledged).add(key)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    stopping.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "it hangs"
    assert not trouble, trouble
    assert min(len(acknowledged), len(interrupted)) > 20, (len(acknowledged), len(interrupted))

    for key in acknowledged:
        assert once.outcome(key, work, key).replayed, f"{key}: its result is lost"
        assert effects[key] == 1, key
    left, ends = set(interrupted), time.monotonic() + 60
    while left and time.monotonic() < ends:
        for key in tuple(left):
            try:
                assert once.using(on_running="raise").run(key, work, key) == f"result of {key}"
                left.discard(key)
            except AlreadyRunning:  # until its lease expires
                pass
        time.sleep(0.1)
    assert not left, f"still locked: {left}"
    once.close()
"""

LOCKS = """
    def locked(key):
        with once.lock(key) as lock:
            lock.check()
        return True

    def by_hand(key):
        lock = once.lock(key).acquire()
        lock.release()
        return True

    free, interrupted = 0, []
    ends = time.monotonic() + 60
    number = 0
    while min(free, len(interrupted)) < 100 and time.monotonic() < ends:
        number += 1
        if interrupted_at_random((locked, by_hand)[number % 2], f"lock {number}"):
            free += 1
        else:
            interrupted.append(f"lock {number}")
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    assert min(free, len(interrupted)) > 20, (free, len(interrupted))
    ends = time.monotonic() + 60
    while interrupted and time.monotonic() < ends:
        taken = []
        for key in interrupted:
            lock = threading_try(key)
            if lock is None:
                taken.append(key)
        interrupted = taken
        time.sleep(0.1)
    assert not interrupted, f"still locked: {interrupted}"
    once.close()
"""

TRY = """
    import contextvars

    def threading_try(key):
        "As another caller: in a context of its own."
        lock = contextvars.Context().run(once.try_lock, key)
        if lock is not None:
            lock.release()
        return lock
"""


def run_script(url: str, *parts: str) -> None:
    program = "\n".join(textwrap.dedent(part) for part in parts)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, url], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.fault("F27", "F53")
@pytest.mark.rival(7, 20)
def test_calls_that_are_interrupted_at_random_moments(url: str) -> None:
    run_script(url, SET_UP, CALLS)


@pytest.mark.fault("F27")
@pytest.mark.rival(7)
def test_locks_that_are_interrupted_at_random_moments_are_free_after_their_lease(url: str) -> None:
    run_script(url, SET_UP, TRY, LOCKS)
