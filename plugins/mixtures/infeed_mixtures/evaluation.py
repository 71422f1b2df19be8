"""Evaluation of a condition for all samples at once."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping, Sequence

import numpy as np

from infeed_mixtures.exact import Values, arithmetic, exact, is_text
from infeed_mixtures.grammar import ARITHMETIC, COMPARISONS, bare_fields, fields_of
from infeed_mixtures.rows import Rows


class Evaluation:
    """The values of the nodes of a condition."""

    def __init__(
        self, fields: Mapping[str, Values | Rows], classes: Mapping[str, Sequence[str]]
    ) -> None:
        self._fields, self._classes = fields, classes
        self._count = len(next(iter(fields.values())))

    def truth(self, node: ast.expr) -> Values:
        """Returns whether a comparison holds for each sample."""
        self._refuse_bare_rows(node)
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
                field = self._fields[name]
                assert not isinstance(field, Rows)  # `truth` refuses them
                return field
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
                return arithmetic(ARITHMETIC[type(op)], self._value(left), self._value(right))
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
            holds[rows] = Evaluation(some, self._classes).truth(node)
        return holds

    def _refuse_bare_rows(self, node: ast.expr) -> None:
        for name in bare_fields(node):
            if isinstance(field := self._fields[name], Rows):
                is_whole = isinstance(node, ast.Compare) and "length(" not in ast.unparse(node)
                remedy = f"any({ast.unparse(node) if is_whole else f'{name} == 3'})"
                if field.values.ndim > 1:
                    remedy = f"length({name}) > 0"
                raise ValueError(
                    f"compares {name!r}, which has several rows in a sample; write {remedy}"
                )

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
        fields = {name: self._fields[name] for name in fields_of(node)}
        rows = [field for field in fields.values() if isinstance(field, Rows)]
        for call in ast.walk(node):
            match call:
                case ast.Call(func=ast.Name(id="length"), args=[ast.Name(id=name)]):
                    if isinstance(field := fields[name], Rows) and not is_text(field.values):
                        raise ValueError(
                            f"has length({name}), a sample's number of rows, in any, which takes "
                            f"one row at a time; write it outside of any, joined by and or or"
                        )
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
        holds = Evaluation(flat, self._classes).truth(node)
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
        return np.asarray(COMPARISONS[type(op)](ours, theirs))

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
