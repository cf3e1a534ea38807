"""The base of the command: common options and settings, and how errors become one line and an exit code."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from onceward._version import __version__
from onceward.errors import OncewardError
from onceward.operations.settings_file import FILES, untrusted_files
from onceward.protocol.secrets import text_without_secrets

from .display import as_json, safe
from .errors import OncewardCommand
from .exit_codes import Exit, exit_code_for, help_table
from .settings import EffectiveSetting, effective_settings

Command = TypeVar("Command", bound=Callable[..., Any])

FLAGS_META_KEY = "onceward.flags"
NOTICES_META_KEY = "onceward.notices"
STREAMS = (0, 1, 2)
MAX_ERROR_LENGTH = 1000  # characters; a message may contain a key of a megabyte

HELP = f"""Make work that is delivered at least once take effect once per key.

\b
Examples:
  onceward run --key backup:2026-01-31 -- pg_dump shop   run it once; later calls get its output
  onceward ls --state PARKED                             what needs an operator
  onceward explain charge:42                             why was it skipped, until when
  onceward erase --tenant acme                           delete all records of a tenant; a preview without --yes
  onceward audit --since 24h                             who changed records manually, and why
  onceward operations                                    declared operations: keys, windows, leases
  onceward schedule shop.jobs:once                       run schedules; each slot once, on any number of machines
  onceward consume shop.orders:app                       process the messages of a queue, each once
  onceward recover shop.jobs:once                        finish work that is not redelivered
  onceward console                                       the same in a browser: keys, parked work, failures
  onceward sagas                                         list sagas and the progress of their steps
  onceward stats -o json | jq                            tables for people, JSON for programs
  onceward stats --since 24h                             executed, replayed and refused work, with a chart
  onceward mcp                                           let an assistant read the store (Model Context Protocol)
  onceward doctor                                        for cron: exit code 1 if something needs attention
  onceward docs errors#lease-lost                        what an error means and what to do
  onceward check --alert "mail -s Onceward ops@shop"     the same by rates and thresholds; each alert once

\b
Each setting comes from the first of these that has it:
  1. a flag                --store sqlite:////var/lib/shop/onceward.db
  2. the environment       ONCEWARD_STORE_URL, ONCEWARD_APP, ONCEWARD_SCOPE, ONCEWARD_OUTPUT, …
  3. a file here           onceward.toml, or [tool.onceward] in pyproject.toml
  4. the default           sqlite:///onceward.db
`onceward config` shows the source of each setting.

\b
Completion for your shell (bash, zsh or fish):
  eval "$(_ONCEWARD_COMPLETE=bash_source onceward)"

{help_table()}
"""


OUTPUT_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class CommandError(click.ClickException):
    """The command failed; the message is one line."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.code = code

    def show(self, file: Any = None) -> None:  # noqa: ARG002 (click's signature)
        print_error(self.message)


class Program(click.Group):
    """Turn errors of the library into one line on stderr and an exit code."""

    command_class = OncewardCommand

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        prepare_streams()
        logging.getLogger("onceward").addHandler(logging.NullHandler())  # commands print what matters themselves
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
            print_error("stopped")
            return Exit.ATTENTION
        except OncewardError as error:
            print_error(str(error))
            return exit_code_for(error)
        except BrokenPipeError:  # `onceward ls | head`: the reader is gone, which is fine
            _discard_output()
            return Exit.OK
        except OSError as error:
            if error.errno not in OUTPUT_ERRNOS:
                raise
            print_error(f"{error.filename or 'the output'}: {error.strerror}")
            _discard_output()
            return Exit.ATTENTION


def _discard_output() -> None:
    """Redirect stdout to /dev/null; otherwise Python would fail again when it flushes the rest at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def prepare_streams() -> None:
    """Replace closed streams with /dev/null, and escape characters that the terminal cannot show."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while os.open(os.devnull, os.O_RDWR) <= max(STREAMS):
            pass  # so that no other file, such as a database, gets the number of a stream
        sys.stdin, sys.stdout, sys.stderr = (
            stream or os.fdopen(number, mode, closefd=False)
            for number, mode, stream in zip(STREAMS, "rww", (sys.stdin, sys.stdout, sys.stderr), strict=True)
        )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_error(message: str) -> None:
    """Print one line on stderr: escaped, shortened, and without secrets."""
    message = text_without_secrets(message)
    text = safe(message[:MAX_ERROR_LENGTH].replace("\n", " "))
    click.echo(f"onceward: {text}{'…' if len(message) > MAX_ERROR_LENGTH else ''}", err=True)


def _remember_flag(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Remember a flag. Flags may come before or after the command's name; the latter wins."""
    if value is not None:
        context.meta.setdefault(FLAGS_META_KEY, {})[parameter.name] = value


def setting_option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """Declare an option that is a setting: it goes to `current_settings()`, not to the function."""
    return click.option(*names, callback=_remember_flag, expose_value=False, **settings)


STORE = setting_option("--store", metavar="URL", help="URL of the store.  [default: sqlite:///onceward.db]")
OUTPUT = setting_option("-o", "--output", type=click.Choice(["auto", "table", "json"]), help="auto: JSON when piped.")
APP = setting_option("--app", metavar="APP", help="App of the key.  [default: default]")
TENANT = setting_option("--tenant", metavar="TENANT", help="Tenant of the key, if tenants share a store.")
SCOPE = setting_option("--scope", metavar="SCOPE", help="Only this scope: app/operation or app/operation@tenant.")

POSITIVE_COUNT = click.IntRange(1, 1_000_000_000)  # the limit of some stores

PEOPLE = click.option(
    "--people",
    "--into",
    "url",
    metavar="URL",
    envvar="ONCEWARD_PEOPLE_URL",
    default="sqlite:///people.db",
    show_default=True,
    help="Database of the people: sqlite:///… or postgresql://…; also $ONCEWARD_PEOPLE_URL.",
)


def common_options(command: Command) -> Command:
    """Add the options --store and --output."""
    return STORE(OUTPUT(command))


def current_settings() -> dict[str, EffectiveSetting]:
    """Return the effective settings of this call."""
    meta = click.get_current_context().meta
    settings = effective_settings(meta.get(FLAGS_META_KEY, {}))
    if not meta.get(NOTICES_META_KEY):
        meta[NOTICES_META_KEY] = True
        _print_notices(settings["store"])
    return settings


def _print_notices(store: EffectiveSetting) -> None:
    """Print which file selects the store and which files are ignored, because a file can redirect the command."""
    folder = Path.cwd()
    for path in untrusted_files(folder):
        print_error(
            f"{path} is ignored, because everyone can write to it or its owner is neither you nor root"
            f" → run: chmod o-w {path}, and chown it to you"
        )
    if store.source in FILES:
        print_error(f"using the store that {folder / store.source} names")


def store_url() -> str:
    return current_settings()["store"].value


def scope() -> str | None:
    """Return the scope to search in; None means all."""
    return current_settings()["scope"].value or None


def wants_json() -> bool:
    return as_json(current_settings()["output"].value)


@click.group(cls=Program, help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="onceward", message="%(prog)s %(version)s")
@common_options
def program() -> None: ...


def load_commands() -> None:
    """Import the modules of all commands: each module adds its commands when it is imported."""
    from . import (  # noqa: F401 (imported to add their commands)
        audit,
        change,
        check,
        console,
        consume,
        docs,
        doctor,
        erase,
        import_file,
        inspect,
        mcp,
        migrate,
        operations,
        people,
        recover,
        review,
        run,
        runbook,
        sagas,
        schedule,
    )


def start(arguments: Sequence[str] | None = None) -> NoReturn:
    load_commands()
    program.main(args=arguments, prog_name="onceward")
