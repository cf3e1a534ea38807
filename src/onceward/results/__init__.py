"""Encode and decode results: a replay returns the type and the value of the first call. Never pickle.

Read `codec.py` first (the envelope around a stored result), then `result_type.py`. `encryption.py` encrypts results.
"""

from typing import TYPE_CHECKING

from onceward.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .cipher import Cipher
    from .encryption import AesGcm

if not TYPE_CHECKING:  # a type checker then knows exactly these names
    __getattr__ = lazy_exports(__name__, {"AesGcm": ".encryption", "Cipher": ".cipher"})

__all__ = ["AesGcm", "Cipher"]
