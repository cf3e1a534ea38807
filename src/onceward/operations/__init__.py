"""Operations: functions with a declared key and policy, the claims that they hold, the transactions that they join.

Read `operation.py` first: it turns the arguments of a call into a job for the engine. `decorator.py`, `function.py` and
`async_function.py` are the decorated functions, `block.py` is the `with` block, `table.py` declares operations by name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .async_function import AsyncFunction
    from .function import Function
    from .table import Operations

_HOMES = {
    "AsyncFunction": ".async_function",
    "Function": ".function",
    "Operations": ".table",
}
"""Where each public name is defined. Imported on first use, so that `import onceward` stays fast."""


if not TYPE_CHECKING:  # a type checker then knows exactly these names

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(import_module(_HOMES[name], __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["AsyncFunction", "Function", "Operations"]
