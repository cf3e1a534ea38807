"""Who sits at this process, for the audit trail."""

from __future__ import annotations

import os

from onceward.protocol.audit import Signature, signature


def who() -> str:
    """`user@host`. The user is the one whose rights we have, not the one whom a variable names."""
    import socket  # not at the top: only those who sign need it

    return f"{_user()}@{socket.gethostname()}"


def _user() -> str:
    import getpass

    try:
        import pwd
    except ImportError:  # Windows
        return getpass.getuser()
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container's user without a name
        return f"uid {os.geteuid()}"


def signed(verb: str, why: str | None, detail: str = "") -> Signature | None:
    """The signature of a program that gives a reason; without one it acts as part of its work, and signs nothing."""
    return None if why is None else signature(verb, who(), why, detail)
