"""Guard process between `onceward run` and its command: kills the command if the owner dies, even by kill -9.

Started as `python -I -S child_guard.py LIFELINE STATUS COMMAND…` in its own session; its children share its process
group. LIFELINE is a pipe that the owner keeps open: if it closes without DISMISS, the owner is dead, and the guard
kills the group. STATUS gets one line: how the command ended. Imports only built-in modules, so that it starts fast.
"""

from __future__ import annotations

import os
import select
import signal
import sys

DISMISS = b"q"
"""Sent by the owner when everything is recorded: the guard exits without killing the group."""


def guard(lifeline: int, status: int, command: list[str]) -> None:
    for inherited in (lifeline, status):
        os.set_inheritable(inherited, False)  # noqa: FBT003 (positional only)
    wakeup_reader, wakeup_writer = os.pipe()
    os.set_blocking(wakeup_writer, False)
    signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
    survive_signals()
    try:
        pid = os.posix_spawnp(command[0], command, os.environ, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ])
    except OSError as error:
        os.write(status, b"error %d" % (error.errno or 0))
        return
    release_streams()
    reported = False
    while True:
        ready, _, _ = select.select([lifeline, wakeup_reader], [], [])
        if lifeline in ready:
            if os.read(lifeline, 1) != DISMISS:
                os.killpg(0, signal.SIGKILL)
            return
        os.read(wakeup_reader, 512)
        if not reported:
            ended, code = os.waitpid(pid, os.WNOHANG)
            if ended:
                os.write(status, b"ended %d" % os.waitstatus_to_exitcode(code))
                os.close(status)
                reported = True


def survive_signals() -> None:
    """Survive signals to the group, which are for the command. Handlers, because ignored signals would be inherited."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
        if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def release_streams() -> None:
    """Close the command's output here; otherwise the owner would also wait for the guard to close it."""
    devnull = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(devnull, stream)


if __name__ == "__main__":
    guard(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
