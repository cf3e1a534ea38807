"""`onceward run`: any command once per key."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import click

from onceward.client.base import enable_counters
from onceward.client.sync import Once
from onceward.errors import (
    AlreadyDone,
    AlreadyRunning,
    LeaseLost,
    LeaseOverdue,
    NotAcquired,
    OutcomeParked,
    PayloadMismatch,
    PreviouslyFailed,
    StillRunning,
)
from onceward.operations.block import ClaimBlock
from onceward.protocol.hints import cli_command, resolve_hint

from . import child_process as child
from .child_process import Ended, Interrupted, Kept, Stops
from .exit_codes import Exit, code_of, table
from .open_store import refuse_private
from .program import APP, STORE, TENANT, CommandError, chosen, complain, flag, program

OPERATION = "command"
"""The operation that keys of `run` belong to, unless --name says otherwise."""

MOST = 1 << 20  # bytes kept of each stream
MOST_POSSIBLE = 16 << 20  # above it, what is stored would no longer be unpacked
ENVELOPE = 4096  # bytes that a stored result needs beside the two streams
NOT_FOUND, NOT_EXECUTABLE, SIGNALLED = 127, 126, 128  # as shells say it
FORMAT = 1

HELP = f"""Run a command once per key. Whoever comes later gets its output and exit code.

The first caller runs it, with its output streamed. A second one waits, then gets the same bytes on the same streams.
Exit code 0 makes the record COMPLETED for the --window; another one makes it FAILED, and the next call runs the
command again, unless --keep-failures. While the command runs its lease is renewed, however long it takes.

If its owner dies, the command dies too, with all that it started in its process group; a signal to the owner is
passed on, and after {child.GRACE:g} s it is killed. Once the lease lapses, --after-crash decides: `rerun` runs it
again, `park` runs nothing until `onceward resolve` says how it ended. A command that was killed by a signal counts
like a crash.

The command line belongs to the key: the same key with another command is refused, unless --any-command. A terminal is
not passed on as stdin, because nobody could type the same again.

\b
Examples:
  onceward run --key backup:$(date +%F) -- pg_dump -f shop.sql shop
  onceward run --key invoice:42 --after-crash park --window 30d -- ./send-invoice 42
  onceward run --key report --no-wait -- make report || test $? = 75

The exit code is the command's own ({NOT_FOUND}: not found, {NOT_EXECUTABLE}: not executable, {SIGNALLED} + n: killed
by signal n), or one of these, always with a line on stderr that begins with "onceward: ".

{table()}
"""


_HINTS: dict[type[NotAcquired], Callable[[str], str]] = {
    AlreadyRunning: lambda key: f"--wait for it, or see: `{cli_command('explain', key)}`",
    StillRunning: lambda key: f"give it a longer --wait, or see: `{cli_command('explain', key)}`",
    OutcomeParked: lambda key: f"find out whether it did its work, then: {resolve_hint(key)}",
    PayloadMismatch: lambda _: "give new work a new key, or say --any-command",
    PreviouslyFailed: lambda key: f"to let it run again: `{cli_command('retry', key)}`",
}
"""What helps on the command line; the library's own hints speak of Python."""


class CommandFailed(Exception):
    """It said so itself by its exit code, or it was never begun: the next call may run it."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class CommandStopped(Exception):
    """It was killed, so nobody knows how far it came. `lost`: because somebody else owns the key now."""

    def __init__(self, message: str, code: int, *, lost: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.lost = lost


@program.command("run", help=HELP, context_settings={"allow_interspersed_args": False})
@click.option("--key", required=True, help="What makes two calls the same work.")
@click.option("--name", default=OPERATION, show_default=True, help="The operation that the key belongs to.")
@flag("--window", metavar="DURATION", help="How long the output answers for the key, or: forever.  [default: 24h]")
@flag("--lease", metavar="DURATION", help="After so long without a renewal an owner counts as dead.  [default: 10m]")
@flag("--wait", metavar="DURATION", help="How long to wait for another owner.  [default: 30s]")
@click.option("--no-wait", is_flag=True, help="Do not wait: exit code 75 if another owner is at it.")
@flag("--after-crash", type=click.Choice(["rerun", "park"]), help="If an owner fell silent.  [default: rerun]")
@click.option("--keep-failures", is_flag=True, help="A failure is an answer like any other: keep it and replay it.")
@click.option("--any-command", is_flag=True, help="The key alone counts, whatever the command line is.")
@click.option(
    "--max-output",
    type=click.IntRange(0, MOST_POSSIBLE),
    default=MOST,
    show_default=True,
    metavar="BYTES",
    help="Bytes kept of stdout, and of stderr.",
)
@APP
@TENANT
@STORE
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run_command(
    *,
    key: str,
    name: str,
    no_wait: bool,
    keep_failures: bool,
    any_command: bool,
    max_output: int,
    command: tuple[str, ...],
) -> int:
    if os.name != "posix":
        raise CommandError("run needs process groups, which this system does not have", Exit.USAGE)
    settings = {name: setting.value for name, setting in chosen().items()}
    refuse_private(settings["store"])
    choices: dict[str, Any] = {
        "window": settings["window"],
        "lease": settings["lease"],
        "wait": settings["wait"],
        "on_running": "raise" if no_wait else "wait",
        "after_crash": settings["after_crash"],
        "not_applied": (CommandFailed, Interrupted),
        "max_result_bytes": 2 * max_output + ENVELOPE,
    }
    payload = None if any_command else {"command": [os.fsencode(word) for word in command]}
    stops = Stops(give_up)

    def perform(claim: Any) -> int:
        return _perform(claim, command, stops, max_output, keep_failures=keep_failures)

    with stops.heard():
        try:
            once = Once(settings["store"], app=settings["app"], tenant=settings["tenant"] or None)
            enable_counters(once)
            block = once.claim(key, name=name, payload=payload, **choices)
            return _once(once, block, perform, key, parks=settings["after_crash"] == "park")
        except Interrupted as stop:  # wherever it came, but not while the command ran or was recorded
            complain(f"stopped by {_name(stop.number)}; nothing was run")
            return SIGNALLED + stop.number


def _once(once: Once, block: ClaimBlock, perform: Callable[[Any], int], key: str, *, parks: bool) -> int:
    """Perform it, or tell why not; the exit code."""
    with once:
        try:
            with block as claim:
                return perform(claim)
        except AlreadyDone as done:
            return replay(done)
        except (CommandFailed, CommandStopped) as error:
            parked = parks and isinstance(error, CommandStopped) and not error.lost
            told = f"; parked → find out how far it came, then: {resolve_hint(key)}" if parked else ""
            complain(f"{error}{told}")
            return Exit.PARKED if parked else error.code
        except NotAcquired as error:
            hint = _HINTS.get(type(error))
            complain(str(error) if hint is None else f"{_without_hint(error)} → {hint(error.key or key)}")
            return code_of(error)


def give_up(number: int) -> None:
    """Leave at once, like a crash: the command has ended, and what --after-crash says holds once the lease is over."""
    complain(f"stopped by {_name(number)}; the command has run, but its record was not confirmed")
    os._exit(Exit.UNKNOWN)


def _without_hint(error: NotAcquired) -> str:
    return str(error).removesuffix(f" → {error.hint}")


def _perform(claim: Any, command: tuple[str, ...], stops: Stops, most: int, *, keep_failures: bool) -> int:
    def check() -> None:
        try:
            claim.check()
        except LeaseOverdue:
            pass  # the store is silent; it may still recover, and killing the command would help nobody
        except LeaseLost as error:
            raise CommandStopped(f"killed, because {error}", Exit.UNKNOWN, lost=True) from error

    streams = Kept(sys.stdout.buffer, most), Kept(sys.stderr.buffer, most)
    ended = child.perform(command, stops, streams, check)
    refuse_unfinished(ended, command[0], keep_failures=keep_failures)
    claim.complete(
        {
            "format": FORMAT,
            "exit": ended.status,
            "stdout": bytes(streams[0].data),
            "stderr": bytes(streams[1].data),
            "lost": [stream.size - len(stream.data) for stream in streams],
        }
    )
    return ended.status


def refuse_unfinished(ended: Ended, program: str, *, keep_failures: bool) -> None:
    """Raise for every end that is not to be recorded as COMPLETED."""
    if ended.error:
        code = NOT_FOUND if ended.error == errno.ENOENT else NOT_EXECUTABLE
        raise CommandFailed(f"{program}: {os.strerror(ended.error)}", code)
    if ended.status == 0:
        return
    if ended.stop:
        raise CommandStopped(f"the command was stopped by {_name(ended.stop)}, sent to us", SIGNALLED + ended.stop)
    if ended.status < 0:
        raise CommandStopped(f"the command was killed by {_name(-ended.status)}", SIGNALLED - ended.status)
    if not keep_failures:
        raise CommandFailed(f"the command failed with exit code {ended.status}; the next call runs it again",
                            ended.status)  # fmt: skip


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def replay(done: AlreadyDone) -> int:
    """The bytes and the exit code of the first call."""
    value = done.value
    if done.stored and value is None:
        complain("done before, as somebody resolved by hand; there is no output")
        return Exit.OK
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        complain("done before, but there is no output that could be shown again")
        return Exit.INCOMPLETE
    for name, stream in (("stdout", sys.stdout.buffer), ("stderr", sys.stderr.buffer)):
        try:
            stream.write(value[name])
            stream.flush()
        except OSError:
            child.silence(stream)
    if any(value["lost"]):
        complain(
            f"the output was longer than what is kept: {value['lost'][0]} bytes of stdout and {value['lost'][1]} of "
            f"stderr are missing; its exit code was {value['exit']} → --max-output"
        )
        return Exit.INCOMPLETE
    code: int = value["exit"]
    return code
