"""The user who runs this process, for the audit trail."""

from __future__ import annotations

import os

from onceward.protocol.audit import AuditSignature, signature


def user_and_host() -> str:
    """Return `user@host`. The user is the effective user of the process, not $USER."""
    import socket  # imported here: only audited changes need it

    return f"{_user()}@{socket.gethostname()}"


def _user() -> str:
    import getpass

    try:
        import pwd
    except ImportError:  # Windows
        return getpass.getuser()
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container user without a name
        return f"uid {os.geteuid()}"


def sign(verb: str, why: str | None, detail: str = "") -> AuditSignature | None:
    """Return the audit signature of a change made for a reason. None: without a reason, the change is not audited."""
    return None if why is None else signature(verb, user_and_host(), why, detail)
