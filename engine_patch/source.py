"""What one Python source file defines, read without importing it.

Standard library only.
"""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class _Class:
    methods: dict[str, Function] = field(default_factory=dict)
    attributes: set[str] = field(default_factory=set)
    bases: tuple[str, ...] = ()


class Source:
    """Names defined by one source file."""

    @classmethod
    def read(cls, root: Path | zipfile.Path, module: str) -> Self | None:
        """Read a module of the package at ``root``; None if it is gone or no Python."""
        *folders, name = module.split(".")[1:]
        file = root.joinpath(*folders, f"{name}.py")
        if not file.is_file():
            file = root.joinpath(*folders, name, "__init__.py")
        try:
            return cls(ast.parse(file.read_bytes()))
        except (OSError, KeyError, SyntaxError, ValueError):
            return None

    def __init__(self, tree: ast.Module) -> None:
        self.names: set[str] = set()
        self.functions: dict[str, Function] = {}
        self.classes: dict[str, _Class] = {}
        for node in tree.body:
            if isinstance(node, Function):
                self.functions[node.name] = node
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name] = _describe(node)
            else:
                self.names |= set(_assigned(node))

    def function(self, name: str) -> Function | None:
        """A function of the module."""
        return self.functions.get(name)

    def method(self, owner: str, name: str) -> Function | None:
        """A method of a class, its bases in the same file included."""
        for known in self._line(owner):
            if name in known.methods:
                return known.methods[name]
        return None

    def has(self, owner: str, name: str) -> bool:
        """Whether a class has an attribute: declared, a method, or set on ``self`` somewhere."""
        return any(name in c.attributes or name in c.methods for c in self._line(owner))

    def _line(self, owner: str) -> Iterator[_Class]:
        known = self.classes.get(owner)
        if known is not None:
            yield known
            for base in known.bases:
                yield from self._line(base)


def parameters(found: Function, *, bound: bool) -> tuple[tuple[str, ...], int]:
    """Positional parameters (without ``self`` if bound), and how many of them are required."""
    given = [*found.args.posonlyargs, *found.args.args][1 if bound else 0 :]
    return tuple(p.arg for p in given), max(0, len(given) - len(found.args.defaults))


def _describe(node: ast.ClassDef) -> _Class:
    known = _Class(bases=tuple(base.id for base in node.bases if isinstance(base, ast.Name)))
    for item in node.body:
        if isinstance(item, Function):
            known.methods[item.name] = item
            known.attributes |= set(_set_on_self(item))
        else:
            known.attributes |= set(_assigned(item))
    return known


def _assigned(node: ast.AST) -> Iterator[str]:
    for target in _targets(node):
        if isinstance(target, ast.Name):
            yield target.id


def _set_on_self(function: Function) -> Iterator[str]:
    for node in ast.walk(function):
        for target in _targets(node):
            if (
                isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            ):
                yield target.attr


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple | ast.List) else (target,)
    elif isinstance(node, ast.AnnAssign):
        yield node.target
