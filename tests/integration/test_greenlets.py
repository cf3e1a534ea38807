"""gevent and eventlet: `threading.Thread` is a greenlet there, which does not run while another greenlet computes."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from tests.integration.store_urls import url

__all__ = ["url"]  # a fixture, listed here so that pytest finds it

PATCHES = {
    "gevent": "from gevent import monkey; monkey.patch_all()",
    "eventlet": "import warnings; warnings.simplefilter('ignore'); import eventlet; eventlet.monkey_patch()",
}

COMPUTE = """
    import sys, time
    from onceward import Once
    from onceward.errors import AlreadyRunning

    def compute(seconds):
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:  # no call that yields
            sum(range(1000))
        try:
            other.run("compute", int)
        except AlreadyRunning:
            return "kept"
        return "taken over"

    once = Once(sys.argv[1], lease="5s", fingerprint="none")
    other = Once(once.store if sys.argv[1] == "memory://" else sys.argv[1], fingerprint="none", on_running="raise")
    other.read("compute")  # connected
    print(once.run("compute", compute, 12), flush=True)
    other.close()
    once.close()
"""

MANY = """
    import sys, threading
    from onceward import Once

    once = Once(sys.argv[1], lease="30s")
    done = []

    def work(number):
        done.append(number)
        return number

    def caller(first):
        for number in range(first, first + 20):
            assert once.run(f"many {number}", work, number) == number

    threads = [threading.Thread(target=caller, args=(first,)) for first in range(0, 100, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    once.close()
    print(len(done), len(set(done)))
"""


def run_patched(patch: str, script: str, url: str) -> list[str]:
    program = f"{PATCHES[patch]}\n{textwrap.dedent(script)}"
    done = subprocess.run(
        [sys.executable, "-c", program, url], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.finding("N13")
@pytest.mark.fault("F33")
@pytest.mark.parametrize("patch", PATCHES)
def test_a_greenlet_that_computes_for_several_leases_keeps_its_claim(patch: str, url: str) -> None:
    assert run_patched(patch, COMPUTE, url)[0] == "kept"


@pytest.mark.finding("N13")
@pytest.mark.parametrize("patch", PATCHES)
def test_greenlets_share_a_client_and_each_key_is_done_once(patch: str, url: str) -> None:
    assert run_patched(patch, MANY, url) == ["110 110"]
