"""`onceward run`: run any command once per key."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, cast

import click

from onceward.client.counting import enable_counters
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
from onceward.protocol.history import HistoryMode
from onceward.protocol.secrets import url_without_secrets
from onceward.stores.registry import ENVIRONMENT

from . import child_process as child
from .child_process import CapturedStream, ExitResult, Interrupted, SignalForwarder
from .exit_codes import Exit, exit_code_for, help_table
from .open_store import raise_if_private
from .program import APP, STORE, TENANT, CommandError, current_settings, print_error, program, setting_option

OPERATION = "command"
"""The operation of keys used with `run`, unless --name is given."""

DEFAULT_MAX_OUTPUT = 1 << 20  # bytes stored of each stream
MAX_OUTPUT_LIMIT = 16 << 20  # bytes; more output belongs in a file
RESULT_OVERHEAD = 4096  # bytes of a stored result beyond the two streams
NOT_FOUND, NOT_EXECUTABLE, SIGNALLED = 127, 126, 128  # as in shells
FORMAT = 1

HELP = f"""Run a command once per key. Later calls get its output and exit code.

The first caller runs the command and streams its output. A second caller waits, then gets the same bytes on the same
streams. Exit code 0 makes the record COMPLETED for the --window. Any other exit code makes it FAILED, and the next
call runs the command again, unless --keep-failures is given. While the command runs, its lease is renewed.

If the owner dies, the command and its process group are killed. A signal to the owner is forwarded to the command,
which is killed after {child.GRACE:g} s. When the lease has expired, --after-crash decides: `rerun` runs the command
again, `park` runs nothing until `onceward resolve` records how it ended. A command that was killed by a signal counts
as crashed.

The command line is the payload of the key: the same key with a different command is refused, unless --any-command is
given. A terminal is not passed as stdin, because its input could not be repeated. If $ONCEWARD_STORE_URL contains a
password, the command does not receive this variable, unless --inherit-store is given.

\b
Examples:
  onceward run --key backup:$(date +%F) -- pg_dump -f shop.sql shop
  onceward run --key invoice:42 --after-crash park --window 30d -- ./send-invoice 42
  onceward run --key report --no-wait -- make report || test $? = 75

The exit code is the command's own ({NOT_FOUND}: not found, {NOT_EXECUTABLE}: not executable, {SIGNALLED} + n: killed
by signal n), or one of the codes below, always with a line on stderr that begins with "onceward: ".

{help_table()}
"""


_HINTS: dict[type[NotAcquired], Callable[[str], str]] = {
    AlreadyRunning: lambda key: f"use --wait to wait for it, or see: `{cli_command('explain', key)}`",
    StillRunning: lambda key: f"use a longer --wait, or see: `{cli_command('explain', key)}`",
    OutcomeParked: lambda key: f"find out whether the command did its work, then: {resolve_hint(key)}",
    PayloadMismatch: lambda _: "use a new key for new work, or use --any-command",
    PreviouslyFailed: lambda key: f"to let it run again: `{cli_command('retry', key)}`",
}
"""Hints for the command line; the library's own hints are about Python."""


class CommandFailed(Exception):
    """The command failed with an exit code, or could not be started: the next call may run it."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class CommandStopped(Exception):
    """The command was killed, so it is unknown how much it did. `lost`: another worker owns the key now."""

    def __init__(self, message: str, code: int, *, lost: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.lost = lost


@program.command("run", help=HELP, context_settings={"allow_interspersed_args": False})
@click.option("--key", required=True, help="Calls with the same key are the same work.")
@click.option("--name", default=OPERATION, show_default=True, help="Operation of the key.")
@setting_option("--window", metavar="DURATION", help="How long the output is replayed, or: forever.  [default: 24h]")
@setting_option(
    "--lease",
    metavar="DURATION",
    help="How long an owner may go without a renewal before it counts as dead.  [default: 60s]",
)
@setting_option(
    "--wait", metavar="DURATION", help="How long to wait for another owner. If it dies, take over.  [default: 24h]"
)
@setting_option(
    "--settle-timeout",
    metavar="DURATION",
    help="How long to keep sending the result to a store that does not answer."
    "  [default: the longer of the lease and 10m]",
)
@click.option("--no-wait", is_flag=True, help="Do not wait: exit code 75 if another worker is processing the key.")
@setting_option(
    "--after-crash", type=click.Choice(["rerun", "park"]), help="What to do after the owner crashed.  [default: rerun]"
)
@click.option("--keep-failures", is_flag=True, help="Store a failure as a result, and replay it.")
@click.option("--any-command", is_flag=True, help="Compare only the key, not the command line.")
@click.option(
    "--inherit-store",
    is_flag=True,
    help="Pass $ONCEWARD_STORE_URL to the command even if it contains a password.",
)
@click.option(
    "--max-output",
    type=click.IntRange(0, MAX_OUTPUT_LIMIT),
    default=DEFAULT_MAX_OUTPUT,
    show_default=True,
    metavar="BYTES",
    help="Maximum bytes to store of stdout, and of stderr.",
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
    inherit_store: bool,
    max_output: int,
    command: tuple[str, ...],
) -> int:
    if not hasattr(os, "killpg"):  # Windows
        raise CommandError(
            "`onceward run` needs process groups, which this system does not have → call your code with"
            " `once.run(key, function)` in Python instead",
            Exit.USAGE,
        )
    settings = {name: setting.value for name, setting in current_settings().items()}
    raise_if_private(settings["store"])
    choices: dict[str, Any] = {
        **{name: settings[name] for name in ("window", "lease", "wait", "after_crash")},
        "settle_timeout": settings["settle_timeout"] or None,
        "on_running": "raise" if no_wait else "wait",
        "not_applied": (CommandFailed, Interrupted),
        "max_result_bytes": 2 * max_output + RESULT_OVERHEAD,
    }
    payload = None if any_command else {"command": [os.fsencode(word) for word in command]}
    stops = SignalForwarder(exit_unconfirmed)

    def perform(claim: Any) -> int:
        environment = child_environment(inherit_store=inherit_store)
        return _run_child(claim, command, stops, max_output, environment, keep_failures=keep_failures)

    with stops.installed():
        try:
            once = Once(
                settings["store"],
                app=settings["app"],
                tenant=settings["tenant"] or None,
                history=cast("HistoryMode", settings["history"]),  # checked with the other settings
            )
            enable_counters(once)
            block = once.claim(key, name=name, payload=payload, **choices)
            return _run_claimed(once, block, perform, key, parks=settings["after_crash"] == "park")
        except Interrupted as stop:  # except while the command ran or was being recorded
            print_error(f"stopped by {_signal_name(stop.number)}; nothing was run")
            return SIGNALLED + stop.number


def _run_claimed(once: Once, block: ClaimBlock, perform: Callable[[Any], int], key: str, *, parks: bool) -> int:
    """Run the command under the claim, or print why not. Return the exit code."""
    with once:
        try:
            with block as claim:
                return perform(claim)
        except AlreadyDone as done:
            return replay(done)
        except (CommandFailed, CommandStopped) as error:
            parked = parks and isinstance(error, CommandStopped) and not error.lost
            suffix = f"; parked → find out how much it did, then: {resolve_hint(key)}" if parked else ""
            print_error(f"{error}{suffix}")
            return Exit.PARKED if parked else error.code
        except NotAcquired as error:
            hint = _HINTS.get(type(error))
            print_error(str(error) if hint is None else f"{_without_hint(error)} → {hint(error.key or key)}")
            return exit_code_for(error)


def exit_unconfirmed(number: int) -> None:
    """Exit immediately, as in a crash: --after-crash decides when the lease has expired. The command has ended."""
    print_error(f"stopped by {_signal_name(number)}; the command has run, but its record was not confirmed")
    os._exit(Exit.UNKNOWN)


def _without_hint(error: NotAcquired) -> str:
    return str(error).removesuffix(f" → {error.hint}")


def child_environment(*, inherit_store: bool) -> dict[str, str]:
    """Return the environment of the command: without the URL of the store, if that contains a password."""
    environment = dict(os.environ)
    url = environment.get(ENVIRONMENT, "")
    if not inherit_store and url_without_secrets(url) != url:
        del environment[ENVIRONMENT]
    return environment


def _run_child(
    claim: Any,
    command: tuple[str, ...],
    stops: SignalForwarder,
    limit: int,
    environment: dict[str, str],
    *,
    keep_failures: bool,
) -> int:
    def check() -> None:
        try:
            claim.check()
        except LeaseOverdue:
            pass  # the store does not respond, but may recover; killing the command would not help
        except LeaseLost as error:
            raise CommandStopped(f"killed, because {error}", Exit.UNKNOWN, lost=True) from error

    streams = CapturedStream(sys.stdout.buffer, limit), CapturedStream(sys.stderr.buffer, limit)
    result = child.run_child(command, stops, streams, check, environment)
    raise_unless_completed(result, command[0], keep_failures=keep_failures)
    claim.complete(
        {
            "format": FORMAT,
            "exit": result.status,
            "stdout": bytes(streams[0].data),
            "stderr": bytes(streams[1].data),
            "lost": [stream.size - len(stream.data) for stream in streams],
        }
    )
    return result.status


def raise_unless_completed(result: ExitResult, program: str, *, keep_failures: bool) -> None:
    """Raise unless the result is to be recorded as COMPLETED."""
    if result.error:
        code = NOT_FOUND if result.error == errno.ENOENT else NOT_EXECUTABLE
        raise CommandFailed(f"{program}: {os.strerror(result.error)}", code)
    if result.status == 0:
        return
    if result.stop:
        raise CommandStopped(
            f"the command was stopped by {_signal_name(result.stop)}, which was sent to onceward",
            SIGNALLED + result.stop,
        )
    if result.status < 0:
        raise CommandStopped(f"the command was killed by {_signal_name(-result.status)}", SIGNALLED - result.status)
    if not keep_failures:
        raise CommandFailed(f"the command failed with exit code {result.status}; the next call runs it again",
                            result.status)  # fmt: skip


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def replay(done: AlreadyDone) -> int:
    """Print the output of the first call, and return its exit code."""
    value = done.value
    if done.stored and value is None:
        print_error("done before, as an operator resolved; there is no output")
        return Exit.OK
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        print_error("done before, but no output was stored")
        return Exit.INCOMPLETE
    for name, stream in (("stdout", sys.stdout.buffer), ("stderr", sys.stderr.buffer)):
        try:
            stream.write(value[name])
            stream.flush()
        except OSError:
            child.discard_output(stream)
    if any(value["lost"]):
        print_error(
            f"the output was longer than --max-output: {value['lost'][0]} bytes of stdout and {value['lost'][1]} of "
            f"stderr are missing; its exit code was {value['exit']} → increase --max-output"
        )
        return Exit.INCOMPLETE
    code: int = value["exit"]
    return code
