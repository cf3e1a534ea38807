"""Stands between `onceward run` and its command, so that the command dies with its owner, even by kill -9.

Started as `python -I -S guard.py LIFELINE STATUS COMMAND…` in a session of its own; its children share its process
group. LIFELINE is a pipe that the owner holds: its end without a word means that the owner is dead, and kills the
group. STATUS takes one line: how the command ended. Imports nothing but builtins, so that it starts in no time.
"""

from __future__ import annotations

import os
import select
import signal
import sys

DISMISSED = b"q"
"""The owner's last word: all is recorded, the guard may go."""


def guard(lifeline: int, status: int, command: list[str]) -> None:
    for inherited in (lifeline, status):
        os.set_inheritable(inherited, False)  # noqa: FBT003 (has no name)
    bell, ringer = os.pipe()
    os.set_blocking(ringer, False)
    signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
    stay()
    try:
        pid = os.posix_spawnp(command[0], command, os.environ, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ])
    except OSError as error:
        os.write(status, b"error %d" % (error.errno or 0))
        return
    let_go_of_streams()
    reported = False
    while True:
        ready, _, _ = select.select([lifeline, bell], [], [])
        if lifeline in ready:
            if os.read(lifeline, 1) != DISMISSED:
                os.killpg(0, signal.SIGKILL)
            return
        os.read(bell, 512)
        if not reported:
            ended, code = os.waitpid(pid, os.WNOHANG)
            if ended:
                os.write(status, b"ended %d" % os.waitstatus_to_exitcode(code))
                os.close(status)
                reported = True


def stay() -> None:
    """Signals to the group are for the command. A handler, because a signal ignored here would be ignored there."""
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
        if one == signal.SIGCHLD or signal.getsignal(one) is not signal.SIG_IGN:
            signal.signal(one, lambda *_: None)


def let_go_of_streams() -> None:
    """Else the owner would wait for us, too, to close the command's output."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


if __name__ == "__main__":
    guard(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
