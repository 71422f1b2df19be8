"""Conditions on the fields of samples: `label < 10 and length(caption) > 5`, evaluated for all
samples at once, without Python's names, attributes and calls."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Values = Any
"""A value for each sample, or one for all."""

_OPERATORS: Mapping[type, Callable[..., Values]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Not: np.logical_not,
    ast.And: np.logical_and,
    ast.Or: np.logical_or,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}

_SYNTAX = "fields, numbers, texts, lists, + - * / // %, comparisons, in, and, or, not, length(x)"


class Condition:
    """A parsed condition. Raises `ValueError` for one that is none."""

    def __init__(self, text: str) -> None:
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, RecursionError) as error:
            raise ValueError(f"should be a condition such as label < 10: {error.args[0]}") from None
        self.fields: tuple[str, ...] = tuple(dict.fromkeys(_fields(self._tree)))

    def holds(self, values: Mapping[str, Values], classes: Mapping[str, Sequence[str]]) -> Values:
        """Returns whether the condition holds for each sample. A text that is compared with a field
        is the name of a class, where its classes have names. Raises `ValueError`."""
        found = _Evaluation(values, classes).value(self._tree)
        if not isinstance(found, np.ndarray) or found.dtype != bool:
            raise ValueError("should be a comparison with a field, such as label < 10")
        return found


def _fields(node: ast.AST) -> Any:
    """Yields the names of the fields. Raises `ValueError` for what a condition does not have."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Call):
        is_length = isinstance(node.func, ast.Name) and node.func.id == "length"
        if not is_length or len(node.args) != 1 or node.keywords:
            raise ValueError(f"should have {_SYNTAX}; {ast.unparse(node)} is none of them")
        yield from _fields(node.args[0])
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
        return
    elif _is_allowed(node):
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.expr):
                yield from _fields(inner)
    else:
        raise ValueError(f"should have {_SYNTAX}; {ast.unparse(node)} is none of them")


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.List | ast.Tuple):
        return all(isinstance(item, ast.Constant | ast.UnaryOp) for item in node.elts)
    if isinstance(node, ast.Compare):
        return all(
            type(one) in _OPERATORS or isinstance(one, ast.In | ast.NotIn) for one in node.ops
        )
    return isinstance(node, ast.BoolOp | ast.BinOp | ast.UnaryOp) and type(node.op) in _OPERATORS


class _Evaluation:
    """The values of the nodes of a condition."""

    def __init__(self, values: Mapping[str, Values], classes: Mapping[str, Sequence[str]]) -> None:
        self._values, self._classes = values, classes

    def value(self, node: ast.expr) -> Values:
        match node:
            case ast.Name(id=name):
                return self._values[name]
            case ast.Constant(value=value):
                return value.encode() if isinstance(value, str) else value
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self.value(item) for item in items]
            case ast.Call(args=[inner]):
                return np.array([len(value) for value in self.value(inner)], np.int64)
            case ast.UnaryOp(op=op, operand=inner):
                return _OPERATORS[type(op)](self.value(inner))
            case ast.BinOp(left=left, op=op, right=right):
                return _OPERATORS[type(op)](self.value(left), self.value(right))
            case ast.BoolOp(op=op, values=nodes):
                found = self.value(nodes[0])
                for inner in nodes[1:]:
                    found = _OPERATORS[type(op)](found, self.value(inner))
                return found
            case ast.Compare(left=left, ops=ops, comparators=others):
                holds: Values = True
                for compare, other in zip(ops, others, strict=True):
                    holds = np.logical_and(holds, self._compared(left, compare, other))
                    left = other
                return holds
        raise AssertionError(node)  # `_fields` refuses others

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Values:
        ours, theirs = self.value(left), self.value(right)
        if isinstance(left, ast.Name):
            theirs = self._numbered(left.id, theirs)
        if isinstance(right, ast.Name):
            ours = self._numbered(right.id, ours)
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(theirs, list):
                raise ValueError("should have a list behind in, such as label in [1, 2]")
            return np.isin(
                ours,
                np.array(theirs, getattr(ours, "dtype", None)),
                invert=isinstance(op, ast.NotIn),
            )
        return np.asarray(_OPERATORS[type(op)](ours, theirs))

    def _numbered(self, field: str, other: Values) -> Values:
        """Returns the numbers of classes instead of their names."""
        if isinstance(other, list):
            return [self._numbered(field, one) for one in other]
        values = self._values[field]
        if not isinstance(other, bytes) or values.dtype.kind in "SUO":
            return other
        names = [*self._classes.get(field, ())]
        if other.decode() not in names:
            known = ", ".join(map(repr, names[:12])) or "no names"
            raise ValueError(f"has {other.decode()!r}, no class of {field!r}, which has {known}")
        return names.index(other.decode())
