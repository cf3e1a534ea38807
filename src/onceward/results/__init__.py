"""Encode and decode results: a replay returns the type and the value of the first call. Never pickle.

Read `codec.py` first (the envelope around a stored result), then `result_type.py`. `encryption.py` encrypts results.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cipher import Cipher
    from .encryption import AesGcm

_HOMES = {
    "AesGcm": ".encryption",
    "Cipher": ".cipher",
}
"""Where each public name is defined. Imported on first use, so that `import onceward` stays fast."""


if not TYPE_CHECKING:  # a type checker then knows exactly these names

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(import_module(_HOMES[name], __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["AesGcm", "Cipher"]
