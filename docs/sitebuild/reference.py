"""Write the pages of the Python reference: one per public module, each name from its docstring."""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from types import ModuleType

from tests.public_api import MODULES, names_of
from tests.public_members import INTERNAL, NOT_CREATED_BY_USERS, PORTS, implements, members_of, public_classes

FIRST = ("Once", "AsyncOnce", "Claim", "AsyncClaim", "Outcome")


def pages() -> dict[str, str]:
    return {f"reference/api/{name}.md": page(import_module(name)) for name in MODULES}


def page(module: ModuleType) -> str:
    lines = [f"# {module.__name__}", "", introduction(module), ""]
    others = []
    for name in sorted(names_of(module), key=importance):
        place = place_of(module, name)
        if place is None:
            others.append(name)
        else:
            lines += [f"::: {place}", *options(getattr(module, name)), ""]
    if others:
        lines += ["## Other names", "", ", ".join(f"`{name}`" for name in others), ""]
    return "\n".join(lines)


def importance(name: str) -> tuple[int, str]:
    """Sort the clients and claims first: they are what most readers look for."""
    return (FIRST.index(name) if name in FIRST else len(FIRST), name)


def introduction(module: ModuleType) -> str:
    """Return the docstring of the module, without the paragraphs that say which file to read first."""
    paragraphs = inspect.cleandoc(module.__doc__ or "").split("\n\n")
    return "\n\n".join(one for one in paragraphs if not one.startswith(("Read `", "First read `")))


def place_of(module: ModuleType, name: str) -> str | None:
    """Return where a class or function is defined; None for everything else."""
    value = getattr(module, name)
    if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("onceward"):
        return f"{value.__module__}.{value.__qualname__}"
    return None


def options(value: object) -> list[str]:
    """Return which members to show, and which protocol describes the others."""
    if not inspect.isclass(value):
        return []
    shown = ["    options:", f"      members: {json.dumps(members_of(value) + fields_of(value))}"]
    if not public_classes().intersection(value.__bases__):
        shown.append("      show_bases: false")
    if value.__name__ in NOT_CREATED_BY_USERS:
        shown.append("      merge_init_into_class: false")
    ports = [port for port in PORTS if implements(value, port)]
    links = [link_to(port) for port in ports]
    return [*shown, "", f"It implements {' and '.join(links)}, which describes its methods."] if links else shown


def fields_of(cls: type) -> list[str]:
    """Return the data attributes of the class and of its bases without a page. Those without a docstring stay hidden."""
    owners = [cls, *(base for base in cls.__mro__[1:] if base not in public_classes())]
    ours = [base for base in owners if base.__module__.startswith("onceward")]
    names = {name for base in ours for name in (*vars(base), *vars(base).get("__annotations__", ()))}
    names -= {name for base in ours for name in INTERNAL.get(base.__name__, ())}
    return sorted(name for name in names if name[0] != "_" and is_data(inspect.getattr_static(cls, name, None)))


def is_data(value: object) -> bool:
    return not (callable(value) or isinstance(value, property | staticmethod | classmethod))


def link_to(port: type) -> str:
    name = f"`{port.__name__}`"
    return f"[{name}][{port.__module__}.{port.__qualname__}]" if port in public_classes() else name
