"""Find the session or connection whose transaction is open around the current call.

SQLAlchemy's events report which session or connection begins a transaction, is used, or writes. Each use is noted in a
context variable, together with the thread and the asyncio task that it happened in: a transaction of another thread or
task is not "around" this call, even if its context was copied from there. Notes are never trusted: whether the
transaction is still open is asked when a call looks for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet, ref

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, async_session
from sqlalchemy.orm import Session

from onceward.client.base import BaseClient
from onceward.engine.joined import enclosing_block
from onceward.errors import ConfigurationError

from .writes import is_write

Target = Session | Connection


def detect_transactions(once: BaseClient, engine: Engine | AsyncEngine) -> Callable[[], None]:
    """Let `once` find transactions that are open on `engine`, which is connected to the database of the records.

    Calls inside such a transaction then follow the setting `open_transaction`. Return a function that ends this.

    Raises:
        ConfigurationError: `engine` is not an `Engine` or `AsyncEngine` of SQLAlchemy.
    """
    if not isinstance(engine, Engine | AsyncEngine):
        raise ConfigurationError(
            f"cannot detect transactions of {type(engine).__name__}", hint="pass an Engine or AsyncEngine of SQLAlchemy"
        )
    watch = _Watch(engine)
    watch.listen()
    remove = once.add_transaction_finder(watch.find, watch.find_uncommitted)

    def end() -> None:
        remove()
        watch.stop_listening()

    return end


class _Use(NamedTuple):
    """A session or connection was used by this thread and task."""

    target: ref[Target]
    thread: int
    task: ref[asyncio.Task[Any]] | None

    def is_here(self) -> bool:
        return self.thread == threading.get_ident() and (None if self.task is None else self.task()) is _current_task()


class _Watch:
    """Notes which sessions and connections of one engine are used, and which of them have written."""

    def __init__(self, engine: Engine | AsyncEngine) -> None:
        self._async_engine = engine if isinstance(engine, AsyncEngine) else None
        self._engine = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
        self._uses: ContextVar[tuple[_Use, ...]] = ContextVar("onceward_sqlalchemy_uses", default=())
        self._sessions: WeakKeyDictionary[Connection, ref[Session]] = WeakKeyDictionary()
        self._written: WeakSet[Target] = WeakSet()
        self._listeners: tuple[tuple[Any, str, Callable[..., None]], ...] = (
            (self._engine, "begin", self._on_begin),
            (self._engine, "before_cursor_execute", self._on_statement),
            (self._engine, "commit", self._on_end),
            (self._engine, "rollback", self._on_end),
            (Session, "after_begin", self._on_session_begin),
            (Session, "after_transaction_create", self._on_session_transaction),
            (Session, "after_attach", self._on_attach),
        )

    def listen(self) -> None:
        for target, name, listener in self._listeners:
            event.listen(target, name, listener)

    def stop_listening(self) -> None:
        for target, name, listener in self._listeners:
            if event.contains(target, name, listener):
                event.remove(target, name, listener)

    # ── what calls ask ──

    def find(self) -> Any | None:
        """Return the outermost open session or connection of this thread and task, as `within` accepts it."""
        return next((self._as_passed(target) for target in self._open_here()), None)

    def find_uncommitted(self) -> Any | None:
        """Like `find`, but only a transaction with changes."""
        return next((self._as_passed(target) for target in self._open_here() if self._has_changes(target)), None)

    def _open_here(self) -> list[Target]:
        targets = [use.target() for use in self._uses.get() if use.is_here()]
        return [target for target in targets if target is not None and target.in_transaction()]

    def _has_changes(self, target: Target) -> bool:
        if target in self._written:
            return True
        if not isinstance(target, Session):
            return False
        return bool(target.new or target.deleted or any(map(target.is_modified, target.dirty)))

    def _as_passed(self, target: Target) -> Any:
        """Return the object that the caller uses: the async one, if the session or connection belongs to one."""
        if isinstance(target, Session):
            return async_session(target) or target
        return target if self._async_engine is None else AsyncConnection(self._async_engine, target)

    # ── what SQLAlchemy reports ──

    def _on_begin(self, connection: Connection) -> None:
        self._sessions.pop(connection, None)  # after_begin follows, if a session begins it
        self._written.discard(connection)
        self._note(connection)

    def _on_session_begin(self, session: Session, _transaction: object, connection: Connection) -> None:
        if self._is_ours(connection):
            self._sessions[connection] = ref(session)
            self._note(session)

    def _on_session_transaction(self, session: Session, transaction: Any) -> None:
        """Note a session as soon as it is used: it may hold new objects for long before it opens a connection."""
        if transaction.parent is None and self._is_bound_here(session):
            self._note(session)

    def _on_attach(self, session: Session, _instance: object) -> None:
        if self._is_bound_here(session):
            self._note(session)

    def _on_statement(  # the signature of the event
        self, connection: Connection, _cursor: object, statement: str, _parameters: object, context: Any, _many: object
    ) -> None:
        target = self._target_of(connection)
        self._note(target)
        if is_write(statement, context):
            _refuse_other_connection(target)
            self._written.add(target)

    def _on_end(self, connection: Connection) -> None:
        self._written.discard(self._target_of(connection))

    def _target_of(self, connection: Connection) -> Target:
        """Return the session that uses this connection, or the connection itself."""
        session = self._sessions.get(connection)
        return (None if session is None else session()) or connection

    def _is_bound_here(self, session: Session) -> bool:
        try:
            return self._is_ours(session.get_bind())
        except UnboundExecutionError:  # bound by mapper: known when it begins a transaction on a connection
            return False

    def _is_ours(self, bind: Engine | Connection) -> bool:
        return bind.engine.pool is self._engine.pool  # also for an engine with other execution options

    def _note(self, target: Target) -> None:
        """Note that this thread and task uses the target. Drop notes of others, and of what is closed."""
        uses = self._uses.get()
        if any(use.target() is target and use.is_here() for use in uses):
            return
        task = _current_task()
        use = _Use(ref(target), threading.get_ident(), None if task is None else ref(task))
        kept = (one for one in uses if one.is_here() and self._is_worth_keeping(one.target(), target))
        self._uses.set((*kept, use))

    def _is_worth_keeping(self, noted: Target | None, new: Target) -> bool:
        """Return whether the noted target is open, and not the connection of the session that is noted now."""
        if noted is None or not noted.in_transaction():
            return False
        return not isinstance(noted, Connection) or self._target_of(noted) is not new


def _refuse_other_connection(target: Target) -> None:
    """Raise if the work was joined to one transaction, and now writes in another, which is committed separately."""
    block = enclosing_block()
    if block is None or block.found is None:
        return
    found = getattr(block.found, "sync_session", None) or getattr(block.found, "sync_connection", None) or block.found
    if found is not target:
        raise ConfigurationError(
            "this call joined the transaction that is open around it, but its work writes in another one: "
            "rows and record would be committed separately",
            hint="use the session that is open around the call, close that one first, or set"
            ' open_transaction="ignore" for this operation',
        )


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None
