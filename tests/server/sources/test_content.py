"""Digests of samples: the tree over them, and proofs that it has a sample."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from infeed_server.sources.content import UNREADABLE, ContentHasher, Contents, is_proven


def contents(count: int) -> Contents:
    return Contents(b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(count)))


@pytest.mark.parametrize("count", [1, 2, 16, 17, 256, 257, 4097])
def test_each_sample_is_proven_and_no_other(count: int) -> None:
    tree = contents(count)
    for index in {0, count // 2, count - 1}:
        proof = tree.proof(index)
        assert is_proven(tree.root, count, index, tree[index], proof)
        assert not is_proven(tree.root, count, index, UNREADABLE, proof)
        assert not is_proven(tree.root, count + 1, index, tree[index], proof)
        assert not is_proven(tree.root, count, index + 16, tree[index], proof)
        assert not is_proven(contents(count + 1).root, count, index, tree[index], proof)
        for level in range(len(proof)):
            changed = [*proof]
            changed[level] = bytes([changed[level][0] ^ 1]) + changed[level][1:]
            assert not is_proven(tree.root, count, index, tree[index], changed)
            # A node is no leaf, and a proof that is too short ends at no root.
            assert not is_proven(tree.root, count, index, tree[index], proof[:level])


def test_a_digest_differs_where_names_types_shapes_or_bytes_do() -> None:
    columns = [
        {"x": np.array([1, 2], np.int32)},
        {"y": np.array([1, 2], np.int32)},
        {"x": np.array([1, 2], np.float32)},
        {"x": np.array([[1], [2]], np.int32)},
        {"x": np.array([b"a", b"b"], object)},
        {"x": np.array([[b"a", b"bc"], [b"", b""]], object)},
        {"x": np.array([[b"ab", b"c"], [b"", b""]], object)},
    ]
    digests = []
    for column in columns:
        hasher = ContentHasher(range(2))
        hasher.add(np.array([1]), {name: values[:1] for name, values in column.items()})
        assert hasher.contents()[0] == UNREADABLE
        digests.append(hasher.contents()[1])
    assert len({*digests}) == len(columns)
