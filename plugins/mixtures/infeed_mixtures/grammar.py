"""Grammar of conditions: the expressions that they allow, and the fields that they name."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence

from infeed_mixtures.exact import Values

ARITHMETIC: Mapping[type, Callable[..., Values]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}

COMPARISONS: Mapping[type, Callable[..., Values]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}

_SYNTAX = (
    "fields, numbers, texts, lists, + - * / // %, comparisons, in, and, or, not, length(x), "
    "any(x == 3)"
)

_MAX_DEPTH = 100
"""Depth of nested operations."""


def fields_of(node: ast.expr, depth: int = 0) -> Iterator[str]:
    """Yields the names of the fields. Raises `ValueError` for an unsupported expression."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"should have at most {_MAX_DEPTH} nested operations")
    inner: list[ast.expr] = []
    match node:
        case ast.Name(id=name):
            yield name
        case ast.Constant(value=int() | float() | str()):
            pass
        case ast.Call(func=ast.Name(id="length" | "any"), args=[one], keywords=[]):
            inner = [one]
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=one):
            inner = [one]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            inner = [left, right]
        case ast.BoolOp(values=values):
            inner = values
        case ast.Compare(left=left, ops=ops, comparators=others) if _are_known(ops):
            inner = [left]
            for compare, other in zip(ops, others, strict=True):
                inner += [other] if type(compare) in COMPARISONS else _items(other)
        case _:
            raise ValueError(f"has {ast.unparse(node)!r}, which is none of {_SYNTAX}")
    for one in inner:
        yield from fields_of(one, depth + 1)


def _are_known(ops: Sequence[ast.cmpop]) -> bool:
    return all(type(op) in COMPARISONS or isinstance(op, ast.In | ast.NotIn) for op in ops)


def _items(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.List | ast.Tuple):
        plain = [one.operand if isinstance(one, ast.UnaryOp) else one for one in node.elts]
        if all(isinstance(one, ast.Constant) for one in plain):
            return node.elts
    raise ValueError("should have a list of values after in, such as label in [1, 2]")


def bare_fields(node: ast.expr) -> Iterator[str]:
    """Yields the fields whose values a comparison takes, without those in `any`, in `length` and in
    other comparisons, which are evaluated on their own."""
    match node:
        case ast.Name(id=name):
            yield name
        case ast.Call(func=ast.Name(id="any")) | ast.Call(args=[ast.Name()]):
            pass
        case ast.Call(args=[inner]):
            yield from bare_fields(inner)
        case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
            pass
        case _:
            for one in ast.iter_child_nodes(node):
                yield from bare_fields(one) if isinstance(one, ast.expr) else ()
