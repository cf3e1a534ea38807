"""`onceward erase`: delete everything that names a key, or the keys of a tenant, a scope or a prefix."""

from __future__ import annotations

import sys

import click
from msgspec.structs import asdict

from onceward.client.erasure import Erased, erase, erase_signature, erasure_filter
from onceward.protocol.erasure import ErasureFilter
from onceward.runtime.threads import run

from . import display
from .confirm import WHY
from .exit_codes import Exit
from .open_store import opened_store
from .program import common_options, print_error, program, store_url, wants_json

MAX_SCOPES = 10  # scopes in a preview for people; JSON lists all of them


@program.command("erase")
@click.option("--tenant", metavar="TENANT", help="All records of this tenant, in all applications and operations.")
@click.option(
    "--scope", metavar="SCOPE", help="All records of exactly this scope: app/operation or app/operation@tenant."
)
@click.option("--key", metavar="KEY", help="All records whose displayed key is exactly this one.")
@click.option(
    "--prefix",
    metavar="TEXT",
    help="All records whose displayed key begins with this text: mail:jane also matches mail:janet.",
)
@click.option("--yes", is_flag=True, help="Erase. Without it, only a preview is shown.")
@WHY
@common_options
def erase_records(
    *, tenant: str | None, scope: str | None, key: str | None, prefix: str | None, yes: bool, why: str
) -> int:
    """Erase records and everything that names their keys, for example after a GDPR request.

    Without --yes, nothing is deleted: the output shows counts and a sample. Options may be combined. Records, results,
    notes, latest states, audit entries and counters by tenant are erased; the audit trail gets one entry without any
    key. If an erased key is delivered again, it runs as new work.

    Keys that a worker is processing are kept and reported (exit code 1): run the command again later. If nothing
    matches, the exit code is 66. Not erased: marks of processed events, which hold message ids until they expire, log
    files and backups. The reason (--why) is kept, so do not name the person there.

    \b
    Examples:
      onceward erase --tenant acme
      onceward erase --tenant acme --yes --why "ticket 4711"
      onceward erase --scope shop/mail --key jane@example.com --yes
      onceward erase --scope shop/charge --prefix customer:42: --yes
    """
    wanted = erasure_filter(tenant, scope, prefix, key)
    signed = erase_signature(wanted, why)
    with opened_store(store_url()) as store:
        done = run(erase(store, wanted, signed, dry_run=not yes, on_progress=_show_progress))
    if wants_json():
        display.print_json(asdict(done))
    else:
        _print(done)
    if done.remains:
        print_error(done.remains)
    if done.unreadable:
        ids = ", ".join(done.unreadable[:MAX_SCOPES])
        number = len(done.unreadable)
        print_error(f"{number} kept, because the content is invalid: {ids} → check it, and delete it in the database")
    if done.kept:
        print_error(f"{_count(done.kept, 'record')} kept: in use by a worker, or changed → run it again later")
    if done.kept or done.unreadable or done.remains:
        return Exit.ATTENTION
    if not (done.records or done.entities or done.audit_entries or done.counter_rows):
        print_error(f"nothing matches: check the spelling of {_options(wanted)}{_scope_hint(tenant, scope)}")
        return Exit.ABSENT
    return Exit.OK


def _options(wanted: ErasureFilter) -> str:
    return " and ".join(f"the {name}" for name in ("tenant", "scope", "key", "prefix") if getattr(wanted, name))


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def _scope_hint(tenant: str | None, scope: str | None) -> str:
    if scope is None or tenant is not None or "@" in scope:
        return ""
    return f" → --scope is exact, and each tenant has a scope of its own ({scope}@TENANT): add --tenant TENANT"


def _show_progress(visited: int, total: int) -> None:
    """Show progress only on a terminal, to keep log files short."""
    if sys.stderr.isatty():
        click.echo(f"\r{visited} of {total} records", err=True, nl=visited >= total)


def _print(done: Erased) -> None:
    for scope, number in sorted(done.scopes.items())[:MAX_SCOPES]:
        click.echo(display.cut(f"{number:>8}  {scope}", display.MAX_LINE_WIDTH))
    if len(done.scopes) > MAX_SCOPES:
        click.echo(f"{'':>8}  and {len(done.scopes) - MAX_SCOPES} more scopes")
    if not done.done:
        for key in done.sample:
            click.echo(display.cut(f"{'':>8}  such as {key}", display.MAX_LINE_WIDTH))
    click.echo(
        f"{'erased' if done.done else 'to erase'}: {_count(done.records, 'record')}, "
        f"{_count(done.entities, 'latest state')}; the tenant in {_count(done.counter_rows, 'counter row')}; "
        f"the key in {_count(done.audit_entries, 'audit entry', 'audit entries')}"
    )
    if done.done:
        click.echo(f"kept: {_count(done.kept, 'record')} in use or changed, {len(done.unreadable)} unreadable")
    else:
        click.echo("Nothing was deleted → add --yes to erase this.")
