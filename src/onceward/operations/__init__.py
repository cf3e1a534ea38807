"""Operations: functions with a declared key and policy, the claims that they hold, the transactions that they join.

Read `operation.py` first: it turns the arguments of a call into a job for the engine. `decorator.py`, `function.py` and
`async_function.py` are the decorated functions, `block.py` is the `with` block, `table.py` declares operations by name.
"""

from typing import TYPE_CHECKING

from onceward.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from onceward.engine.stream import ItemOutcome

    from .async_function import AsyncFunction
    from .function import Function
    from .table import Operations

if not TYPE_CHECKING:  # a type checker then knows exactly these names
    __getattr__ = lazy_exports(
        __name__,
        {
            "AsyncFunction": ".async_function",
            "Function": ".function",
            "ItemOutcome": "onceward.engine.stream",
            "Operations": ".table",
        },
    )

__all__ = ["AsyncFunction", "Function", "ItemOutcome", "Operations"]
