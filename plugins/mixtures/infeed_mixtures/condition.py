"""Conditions on the fields of samples, such as `label < 10 and length(caption) > 5`, evaluated for
all samples at once. They have none of Python's names, attributes and calls."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from infeed_mixtures.exact import Values, arithmetic, exact, is_text
from infeed_mixtures.rows import Rows, has_rows

_ARITHMETIC: Mapping[type, Callable[..., Values]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}

_COMPARISONS: Mapping[type, Callable[..., Values]] = {
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

_MAX_LENGTH = 10_000
"""Characters of a condition."""

_MAX_DEPTH = 100
"""Depth of nested operations."""


class Condition:
    """A parsed condition. Raises `ValueError` for a text that is not a condition."""

    def __init__(self, text: str) -> None:
        if len(text) > _MAX_LENGTH:
            raise ValueError(
                f"should have at most {_MAX_LENGTH} characters, not {len(text)}; list the ids of "
                "samples to leave out in remove"
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # Python only warns of '\d' and 1or
                self._tree = ast.parse(text.strip(), mode="eval").body
            self.fields: tuple[str, ...] = tuple(dict.fromkeys(_fields(self._tree)))
        except (SyntaxError, RecursionError, MemoryError) as error:
            problem = error.args[0] if error.args else "it is nested too deeply"
            raise ValueError(f"should be a condition such as label < 10: {problem}") from None
        if not self.fields:
            raise ValueError("should be a comparison with a field, such as label < 10")

    def holds(self, values: Mapping[str, Values], classes: Mapping[str, Sequence[str]]) -> Values:
        """Returns whether the condition holds for each sample. Beside a field of numbers, a text is
        the name of a class. Raises `ValueError`."""
        fields = {
            name: Rows.of(field) if has_rows(field) else exact(field)
            for name, field in values.items()
        }
        return _Evaluation(fields, classes).truth(self._tree)


def _fields(node: ast.expr, depth: int = 0) -> Iterator[str]:
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
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            inner = [left, right]
        case ast.BoolOp(values=values):
            inner = values
        case ast.Compare(left=left, ops=ops, comparators=others) if _are_known(ops):
            inner = [left]
            for compare, other in zip(ops, others, strict=True):
                inner += [other] if type(compare) in _COMPARISONS else _items(other)
        case _:
            raise ValueError(f"should have {_SYNTAX}, not {ast.unparse(node)}")
    for one in inner:
        yield from _fields(one, depth + 1)


def _are_known(ops: Sequence[ast.cmpop]) -> bool:
    return all(type(op) in _COMPARISONS or isinstance(op, ast.In | ast.NotIn) for op in ops)


def _items(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.List | ast.Tuple):
        plain = [one.operand if isinstance(one, ast.UnaryOp) else one for one in node.elts]
        if all(isinstance(one, ast.Constant) for one in plain):
            return node.elts
    raise ValueError("should have a list of values after in, such as label in [1, 2]")


class _Evaluation:
    """The values of the nodes of a condition."""

    def __init__(
        self, fields: Mapping[str, Values | Rows], classes: Mapping[str, Sequence[str]]
    ) -> None:
        self._fields, self._classes = fields, classes
        self._count = len(next(iter(fields.values())))

    def truth(self, node: ast.expr) -> Values:
        """Returns whether a comparison holds for each sample."""
        found = self._value(node)
        if found.dtype != bool:
            raise ValueError(
                "should be a comparison with a field, such as label < 10, or several with and, or, "
                f"not; {ast.unparse(node)} is not one"
            )
        return np.broadcast_to(found, self._count)

    def _value(self, node: ast.expr) -> Values:
        match node:
            case ast.Name(id=name):
                return self._one_each(name)
            case ast.Call(func=ast.Name(id="any"), args=[inner]):
                return self._any(inner)
            case ast.Constant(value=value):
                return exact(np.array(value, object if isinstance(value, str) else None))
            case ast.Call(args=[inner]):
                return self._length(inner)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return ~self.truth(inner)
            case ast.UnaryOp(operand=inner):
                return arithmetic(operator.sub, np.array(0), self._value(inner))
            case ast.BinOp(left=left, op=op, right=right):
                return arithmetic(_ARITHMETIC[type(op)], self._value(left), self._value(right))
            case ast.BoolOp(op=op, values=nodes):
                return self._connected(nodes, isinstance(op, ast.And))
            case ast.Compare(left=left, ops=ops, comparators=others):
                holds = np.ones((), bool)
                for compare, other in zip(ops, others, strict=True):
                    holds = holds & self._compared(left, compare, other)
                    left = other
                return np.asarray(holds)
        raise AssertionError(node)  # `_fields` refuses others

    def _connected(self, nodes: Sequence[ast.expr], is_and: bool) -> Values:
        """Returns whether all, or any, of the comparisons hold. Each is made only for the samples
        that earlier ones leave open, so `y != 0 and x / y > 1` never divides by 0."""
        holds = np.full(self._count, is_and)
        for node in nodes:
            rows = np.flatnonzero(holds == is_and)
            if not rows.size:
                break
            some = {name: field[rows] for name, field in self._fields.items()}
            holds[rows] = _Evaluation(some, self._classes).truth(node)
        return holds

    def _one_each(self, name: str) -> Values:
        field = self._fields[name]
        if isinstance(field, Rows):
            raise ValueError(
                f"compares {name!r}, which has several rows in a sample; write any({name} == 3) or "
                f"length({name}) > 0"
            )
        return field

    def _length(self, node: ast.expr) -> Values:
        field = self._fields[node.id] if isinstance(node, ast.Name) else None
        if isinstance(field, Rows):
            return field.counts
        texts = self._value(node)
        if not is_text(texts):
            raise ValueError(
                f"takes the length of {ast.unparse(node)}, which is neither a text nor has rows"
            )
        return np.array([len(text) for text in texts.flat], np.int64).reshape(texts.shape)

    def _any(self, node: ast.expr) -> Values:
        """Returns whether a comparison holds for at least one row of each sample."""
        fields = {name: self._fields[name] for name in _fields(node)}
        rows = [field for field in fields.values() if isinstance(field, Rows)]
        if not rows:
            raise ValueError(f"needs a field with rows in any, at {ast.unparse(node)}")
        counts = rows[0].counts
        flat = {
            name: field.of_rows(name, counts)
            if isinstance(field, Rows)
            else np.repeat(field, counts)
            for name, field in fields.items()
        }
        samples = np.repeat(np.arange(self._count), counts)
        holds = _Evaluation(flat, self._classes).truth(node)
        return np.bincount(samples[holds], minlength=self._count) > 0

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Values:
        if isinstance(right, ast.List | ast.Tuple):
            ours = self._value(left)
            items = [self._beside(left, item) for item in right.elts]
            for item in items:
                _check_kinds(ours, item, left)
            wanted = {item.item() for item in items}
            flat = ours.reshape(-1).tolist()
            found = np.fromiter((one in wanted for one in flat), bool, len(flat))
            return found.reshape(ours.shape) ^ isinstance(op, ast.NotIn)
        ours, theirs = self._beside(right, left), self._beside(left, right)
        _check_kinds(ours, theirs, left)
        return np.asarray(_COMPARISONS[type(op)](ours, theirs))

    def _beside(self, other: ast.expr, node: ast.expr) -> Values:
        """Returns the value of a node compared with another one: for a text beside a field of
        numbers, the number of the class."""
        match other, node:
            case ast.Name(id=field), ast.Constant(value=str() as text):
                if not is_text(self._value(other)):
                    return np.array(_class_number(field, [*self._classes.get(field, ())], text))
        return self._value(node)


def _class_number(field: str, names: list[str], text: str) -> int:
    if text not in names:
        known = ", ".join(map(repr, names[:12])) or "no names"
        raise ValueError(f"has {text!r}, which is not a class of {field!r}; it has {known}")
    if names.count(text) > 1:
        raise ValueError(f"has {text!r}, which names several classes of {field!r}; give the number")
    return names.index(text)


def _check_kinds(ours: Values, theirs: Values, node: ast.expr) -> None:
    if ours.size and theirs.size and is_text(ours) != is_text(theirs):
        raise ValueError(f"compares a text with a number, at {ast.unparse(node)}")
