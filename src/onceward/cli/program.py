"""The frame of the command: its options, its settings, and how every error becomes one line and an exit code."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import click

from onceward._version import __version__
from onceward.errors import OncewardError

from .display import as_json, safe
from .errors import FriendlyCommand
from .exit_codes import Exit, code_of, table
from .settings import Setting, effective, masked

Command = TypeVar("Command", bound=Callable[..., Any])

FLAGS = "onceward.flags"
STREAMS = (0, 1, 2)
LONGEST_COMPLAINT = 1000  # characters; a message may quote a key of a megabyte

HELP = f"""Gives work that is delivered at least once an effect that happens once per key.

\b
Examples:
  onceward run --key backup:2026-01-31 -- pg_dump shop   run it once; whoever comes later gets its output
  onceward ls --state PARKED                             what waits for a person
  onceward explain charge:42                             why was it skipped, by whom, until when
  onceward audit --since 24h                             who changed records by hand, and why
  onceward operations                                    what is declared: keys, windows, leases
  onceward schedule shop.jobs:once                       run its schedules; on ten machines, each slot once
  onceward consume shop.orders:app                       work on the messages of a queue, each once
  onceward recover shop.jobs:once                        finish what nobody delivers again
  onceward sagas                                         how far each of their steps has come
  onceward stats -o json | jq                            tables for people, JSON for programs
  onceward stats --since 24h                             what was executed, replayed, refused, with a chart
  onceward doctor                                        for cron: exit code 1 if somebody should look
  onceward check --alert "mail -s Onceward ops@shop"     as above, by rates and thresholds; each alert once

\b
Settings come from the nearest place that has them:
  1. a flag                --store sqlite:////var/lib/shop/onceward.db
  2. the environment       ONCEWARD_STORE_URL, ONCEWARD_APP, ONCEWARD_SCOPE, ONCEWARD_OUTPUT, …
  3. a file in this folder onceward.toml, or [tool.onceward] in pyproject.toml
  4. the default           sqlite:///onceward.db
`onceward config` shows which.

\b
Completion for your shell (bash, zsh or fish):
  eval "$(_ONCEWARD_COMPLETE=bash_source onceward)"

{table()}
"""


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class CommandError(click.ClickException):
    """The command cannot do what was asked; one line says why."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.code = code

    def show(self, file: Any = None) -> None:  # noqa: ARG002 (click's signature)
        complain(self.message)


class Program(click.Group):
    """Turns errors of the library into one line on stderr and the exit code of the table."""

    command_class = FriendlyCommand

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        prepare_streams()
        logging.getLogger("onceward").addHandler(logging.NullHandler())  # what matters is said in our own lines
        kwargs["standalone_mode"] = False
        sys.exit(self._code(args, kwargs))

    def _code(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        try:
            return super().main(*args, **kwargs) or 0
        except CommandError as error:
            error.show()
            return error.code
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except click.Abort:
            complain("stopped")
            return Exit.ATTENTION
        except OncewardError as error:
            complain(str(error))
            return code_of(error)
        except BrokenPipeError:  # `onceward ls | head`: nobody reads on, which is fine
            _drop_output()
            return Exit.OK
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            complain(f"{error.filename or 'the output'}: {error.strerror}")
            _drop_output()
            return Exit.ATTENTION


def _drop_output() -> None:
    """Python writes what is left of it when it ends, and would complain once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def prepare_streams() -> None:
    """A terminal that cannot show a character gets its number instead of a traceback. Closed streams lead nowhere."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while os.open(os.devnull, os.O_RDWR) <= max(STREAMS):
            pass  # so that no file of ours, a database for one, takes the number of a stream
        sys.stdin, sys.stdout, sys.stderr = (
            stream or os.fdopen(number, mode, closefd=False)
            for number, mode, stream in zip(STREAMS, "rww", (sys.stdin, sys.stdout, sys.stderr), strict=True)
        )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def complain(message: str) -> None:
    """One line on stderr, whatever the message quotes."""
    message = masked(message)
    text = safe(message[:LONGEST_COMPLAINT].replace("\n", " "))
    click.echo(f"onceward: {text}{'…' if len(message) > LONGEST_COMPLAINT else ''}", err=True)


def _keep(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Flags may stand before or behind the command's name; the one behind wins."""
    if value is not None:
        context.meta.setdefault(FLAGS, {})[parameter.name] = value


def flag(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """An option that is a setting: it goes to `chosen()` and not to the function."""
    return click.option(*names, callback=_keep, expose_value=False, **settings)


STORE = flag("--store", metavar="URL", help="Where the records are.  [default: sqlite:///onceward.db]")
OUTPUT = flag("-o", "--output", type=click.Choice(["auto", "table", "json"]), help="auto: JSON when piped.")
APP = flag("--app", metavar="APP", help="The app that the key belongs to.  [default: default]")
TENANT = flag("--tenant", metavar="TENANT", help="Whose key it is, where tenants share a store.")
SCOPE = flag("--scope", metavar="SCOPE", help="Only this scope: app/operation or app/operation@tenant.")

HOW_MANY = click.IntRange(1, 1_000_000_000)  # more than that no store can count to

PEOPLE = click.option(
    "--people",
    "--into",
    "url",
    metavar="URL",
    envvar="ONCEWARD_PEOPLE_URL",
    default="sqlite:///people.db",
    show_default=True,
    help="The database of the people: sqlite:///… or postgresql://…; also $ONCEWARD_PEOPLE_URL.",
)


def common(command: Command) -> Command:
    """The options that every command takes whose output has a shape."""
    return STORE(OUTPUT(command))


def chosen() -> dict[str, Setting]:
    """The effective settings of this call."""
    return effective(click.get_current_context().meta.get(FLAGS, {}))


def store_url() -> str:
    return chosen()["store"].value


def scope() -> str | None:
    """The scope to look in; None means all."""
    return chosen()["scope"].value or None


def wants_json() -> bool:
    return as_json(chosen()["output"].value)


@click.group(cls=Program, help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="onceward", message="%(prog)s %(version)s")
@common
def program() -> None: ...


def load() -> None:
    """Import the modules of all commands: each module adds its commands when it is imported."""
    from . import (  # noqa: F401 (imported to add their commands)
        audit,
        change,
        check,
        consume,
        doctor,
        import_file,
        inspect,
        migrate,
        operations,
        recover,
        review,
        run,
        sagas,
        schedule,
    )


def start(arguments: Sequence[str] | None = None) -> NoReturn:
    load()
    program.main(args=arguments, prog_name="onceward")
