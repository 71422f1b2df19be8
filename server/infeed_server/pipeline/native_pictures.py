"""Native pictures: JPEGs that `infeed_jpeg` decodes, crops, resizes and flips, without the graph.

The pixels are the graph's. A picture that it refuses, and each sample of a batch that cannot be
parsed, is left to the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.picture_counts import DECODED, PictureCounts
from infeed_server.pipeline.picture_steps import PictureChain, find_chain, fuse_decode_and_crop
from infeed_server.pipeline.sample_graph import ColumnsFunction, SampleFunction, Specs
from infeed_server.processes import cgroup
from infeed_server.sources.base import Columns, Sample, Source
from infeed_server.sources.python.mapped import Keys
from infeed_server.transforms.base import Step
from infeed_server.transforms.images.jpeg import is_cut_off

_PIXELS, _IS_DECODED = "native/pixels", "native/decoded"
"""Columns of the graph, besides the source's, where steps follow."""

_DAMAGED = "damaged"
"""The decoder's status of a picture with invalid bytes, or too few."""

_OTHER = "of a wrong size"
"""Status of a picture that the decoder is not given."""

_Status: TypeAlias = "npt.NDArray[np.integer]"
Run = Callable[[Callable[[int], _Status], Iterable[int]], Iterable[_Status]]
"""`map`, or a pool's."""

_MAX_TOGETHER = 8
"""Pictures of one call, on one thread: more would leave other threads idle at a batch's end."""


def choose_chain(kept: Sequence[Step], steps: Sequence[Step], decoder: str) -> PictureChain | str:
    """Returns the chain of steps that the native decoder makes, or a line why TensorFlow decodes;
    empty where no picture is decoded. `kept` are the steps of a cache, `decoder` a value of
    `--decoder`. Raises `ConfigError` for `native` where it cannot decode."""
    chain = "the graph makes what cache keeps" if find_chain(kept) else find_chain(steps)
    reason = chain if isinstance(chain, str) else _unavailable(decoder)
    if not (chain and reason):
        return chain
    if decoder == "native":
        raise ConfigError(f"--decoder native: {reason}; leave it out, and TensorFlow decodes")
    return f"TensorFlow decodes the pictures: {reason}"


def _unavailable(decoder: str) -> str:
    """Returns why the native decoder is not used; empty where it is."""
    if decoder == "tensorflow":
        return "--decoder tensorflow"
    try:
        reason = import_module("infeed_jpeg").unavailable()
    except ImportError:
        return "the package infeed-jpeg is not installed"
    return f"infeed-jpeg: {reason}" if reason else ""


class Made(NamedTuple):
    """What is made of a batch's columns."""

    done: npt.NDArray[np.bool_]
    """The rows that need no graph."""
    fields: Columns
    """The fields of these rows."""
    left: Columns
    """The graph's columns of the others."""
    cut_off: npt.NDArray[np.bool_]
    """Which of those are pictures that end too early: TensorFlow will hardly decode them."""


class NativePictures:
    """Makes the pictures of a pipeline's batches. Thread-safe. As text, it is a line with the share
    that it has made."""

    def __init__(self, chain: PictureChain, source: Source) -> None:
        self.counts = PictureCounts()
        self._decoder = import_module("infeed_jpeg")
        self._cpus = cgroup.cpu_count()
        self._chain = chain
        self._source = source
        self._field = chain.decode.field
        self._pixels = tf.TensorSpec((*chain.size, 3), tf.uint8)

    def __str__(self) -> str:
        return str(self.counts)

    @property
    def is_complete(self) -> bool:
        """Whether no steps follow: what is decoded needs no graph."""
        return not self._chain.rest

    @property
    def columns(self) -> Specs:
        """The columns of the graph."""
        columns = dict(self._source.columns)
        if not self.is_complete:
            columns |= {_PIXELS: self._pixels, _IS_DECODED: tf.TensorSpec((), tf.bool)}
        return columns

    @property
    def steps(self) -> list[Step]:
        """The steps that the decoder does, as the graph does them."""
        return fuse_decode_and_crop(self._chain.steps)

    @property
    def ordinals(self) -> list[int]:
        return [ordinal for ordinal, _ in self._chain.steps]

    @property
    def bytes(self) -> int:
        """The bytes of a picture."""
        return int(self._pixels.shape.num_elements())

    def make(self, columns: Columns, keys: Keys, run: Run) -> Made:
        """Decodes the pictures of samples. Where steps follow, no row is done, and the graph's
        columns have the pixels."""
        fields = self._fields(columns)
        contents = fields[self._field]
        pixels, done, cut_off = self._decode(contents, keys, run)
        if self.is_complete:
            made = {**fields, self._field: pixels}
            left = select_rows(columns, ~done)
            return Made(done, select_rows(made, done), left, cut_off[~done])
        if self._source.parsed:  # or the field is a part of a record
            columns = {**columns, self._field: np.where(done, np.array(b"", object), contents)}
        left = {**columns, _PIXELS: pixels, _IS_DECODED: done}
        return Made(np.zeros(len(keys), np.bool_), {}, left, cut_off)

    def count(self, columns: Columns) -> None:
        """Counts pictures by their headers, without decoding those that the decoder takes."""
        contents = self._fields(columns)[self._field].tolist()
        sizes = self._decoder.read_headers(contents)
        odd = [content for content, size in zip(contents, sizes, strict=True) if not size.any()]
        nowhere, flips = np.zeros((len(odd), 4), np.int32), np.zeros(len(odd), np.uint8)
        pixels = np.empty((len(odd), 1, 1, 3), np.uint8)
        status = self._decoder.decode_batch(odd, nowhere, flips, pixels, 1)
        self.counts.add(self._decoder.STATUS[number] for number in status)
        self.counts.add([DECODED] * (len(contents) - len(odd)))

    def sample_function(self) -> SampleFunction:
        """Returns the function from the graph's columns of a sample to its fields."""
        source, chain, field = self._source, self._chain, self._field
        if self.is_complete:
            return sample_graph.sample_function(source, self.steps)

        def transform(columns: Sample, key: tf.Tensor) -> Sample:
            sample = source.parse({name: columns[name] for name in source.columns})

            def decode() -> tf.Tensor:
                made = sample
                for step in self.steps:
                    made = sample_graph.apply_step(step, made, key)
                return made[field]

            pixels = tf.cond(columns[_IS_DECODED], lambda: columns[_PIXELS], decode)
            sample = {**sample, field: tf.ensure_shape(pixels, self._pixels.shape)}
            for step in chain.rest:
                sample = sample_graph.apply_step(step, sample, key)
            return sample

        return transform

    def _fields(self, columns: Columns) -> Columns:
        """Returns the fields of samples; the picture's alone where the graph parses them too."""
        if self._source.parsed:
            return columns
        count = len(next(iter(columns.values())))
        try:
            fields = self._parse(columns, np.zeros((count, 2), np.int64))
        except (tf.errors.OpError, UnicodeError):  # of a bad sample: the graph meets it too
            return {self._field: np.full(count, b"", object)}
        return {name: np.asarray(values) for name, values in fields.items()}

    def _decode(
        self, contents: npt.NDArray[Any], keys: Keys, run: Run
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Returns the pixels of pictures, whether each is decoded, and whether it is cut off."""
        sizes = self._decoder.read_headers(contents.tolist())
        drawn, is_flipped = self._draw(sizes, keys)
        windows, flips = np.asarray(drawn), np.asarray(is_flipped).astype(np.uint8)
        max_pixels = self._chain.decode.max_pixels
        is_allowed = (windows[:, :2] >= 0) & (windows[:, :2] + windows[:, 2:] <= sizes)
        is_allowed = is_allowed.all(1) & (sizes.prod(1, dtype=np.int64) <= max_pixels)
        is_other = sizes.any(1) & ~is_allowed
        records = np.where(is_other, np.array(b"", object), contents).tolist()
        pixels = np.empty((len(records), *self._pixels.shape), np.uint8)

        def decode_some(begin: int) -> _Status:
            some = slice(begin, begin + together)
            arguments = (values[some] for values in (records, windows, flips, pixels))
            return self._decoder.decode_batch(*arguments, 1)  # type: ignore[no-any-return]

        together = min(_MAX_TOGETHER, -(-len(records) // self._cpus))
        status = np.concatenate([*run(decode_some, range(0, len(records), together))])
        words = np.where(is_other, _OTHER, np.array(self._decoder.STATUS)[status])
        self.counts.add(words.tolist())
        cut_off = words == _DAMAGED
        cut_off[cut_off] = [is_cut_off(content) for content in contents[cut_off]]
        return pixels, status == 0, cut_off

    @cached_property
    def _draw(self) -> Callable[[Any, Any], tuple[tf.Tensor, tf.Tensor]]:
        signature = [tf.TensorSpec([None, 2], tf.int32), tf.TensorSpec([None, 2], tf.int64)]
        traced = tf.function(self._chain.draw, input_signature=signature, autograph=False)
        return traced.get_concrete_function()  # type: ignore[no-any-return]

    @cached_property
    def _parse(self) -> ColumnsFunction:
        def parse(columns: Sample, _: tf.Tensor) -> Sample:
            fields = self._source.parse(columns)
            return fields if self.is_complete else {self._field: fields[self._field]}

        return sample_graph.columns_function(self._source.columns, parse)


def select_rows(columns: Columns, some: npt.NDArray[np.bool_]) -> Columns:
    """Returns some rows of columns; all of them without a copy."""
    return columns if some.all() else {name: values[some] for name, values in columns.items()}
