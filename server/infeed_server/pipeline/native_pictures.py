"""Native pictures: JPEGs that `infeed_jpeg` decodes, crops, resizes and flips, without the graph.

The pixels equal the graph's. The graph makes the pictures that the decoder refuses, and all samples
of a batch that cannot be parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.picture_counts import PictureCounts
from infeed_server.pipeline.picture_steps import Draws, PictureChain, fuse_decode_and_crop
from infeed_server.pipeline.rows import read_only, select_rows
from infeed_server.pipeline.sample_graph import ColumnsFunction, SampleFunction, Specs
from infeed_server.processes import cgroup
from infeed_server.sources.base import Columns, Sample, Source
from infeed_server.sources.places import Keys
from infeed_server.transforms.base import Step
from infeed_server.transforms.images.jpeg import is_cut_off
from infeed_server.transforms.images.orientation import SIDEWAYS, UPRIGHT, orientations
from infeed_server.transforms.sizes import MAX_PIXELS

_PIXELS, _IS_DECODED, _SIZE = "native/pixels", "native/decoded", "native/size"
"""Columns of the graph besides the source's, if steps follow."""

_DAMAGED = "damaged"
"""The decoder's status of a picture with invalid bytes, or too few."""

_LARGE = "with too many pixels"
"""Status of pictures that are not passed to the decoder."""

Run = Callable[[Callable[[int], None], Iterable[int]], Iterable[None]]
"""`map`, or the method of a pool."""


@cache
def decode_threads() -> ThreadPoolExecutor:
    """Returns the process's threads for decoding, as many as the graph has. They work in the order
    of batches, so that none idles while another decodes a batch's last picture."""
    return ThreadPoolExecutor(_thread_count(), "infeed-decode")


@cache
def _thread_count() -> int:
    return cgroup.cpu_count() + 1


_NO_DRAWS = Draws(np.empty((0, 4), np.int32), np.empty(0, np.uint8), np.empty((0, 4), np.int32))

_MAX_SIZES = 1 << 12
"""Maximum sizes of images whose crops are kept."""


class Made(NamedTuple):
    """What the native decoder makes from a batch's columns."""

    done: npt.NDArray[np.bool_]
    """The rows that need no graph."""
    fields: Columns
    """The fields of all rows, undefined and writable in the rows that are not done."""
    left: Columns
    """The graph's columns of the rows that are not done."""
    cut_off: npt.NDArray[np.bool_]
    """Which of those are truncated pictures, which TensorFlow probably cannot decode."""


class NativePictures:
    """Makes the pictures of a pipeline's batches. Thread-safe. Its text is a line with the share of
    pictures that it has made."""

    def __init__(
        self, chain: PictureChain, source: Source, *, always_in_graph: bool = False
    ) -> None:
        """`always_in_graph`: the graph makes the fields of each sample, even if no steps follow."""
        self.is_complete = not (chain.rest or always_in_graph)
        """Whether decoded samples need no graph."""
        self.counts = PictureCounts()
        self._decoder = import_module("infeed_jpeg")
        self._chain = chain
        self._source = source
        self._field = chain.decode.field
        self._taken: tuple[dict[tuple[int, ...], int], Draws] = ({}, _NO_DRAWS)
        """The index of each image size so far, and the part taken of images of that size."""
        self._pixels = tf.TensorSpec((*chain.size, 3), tf.uint8)

    def __str__(self) -> str:
        return str(self.counts)

    @property
    def columns(self) -> Specs:
        """The columns of the graph."""
        columns = dict(self._source.columns)
        if not self.is_complete:
            columns |= {_PIXELS: self._pixels, _IS_DECODED: tf.TensorSpec((), tf.bool)}
        if self._chain.measure:
            columns[_SIZE] = tf.TensorSpec([2], tf.int32)
        return columns

    @property
    def steps(self) -> list[Step]:
        """The decoder's steps, as the graph runs them."""
        return fuse_decode_and_crop(self._chain.steps)

    @property
    def ordinals(self) -> list[int]:
        return [ordinal for ordinal, _ in self._chain.steps]

    @property
    def bytes(self) -> int:
        """The bytes of a picture."""
        return int(self._pixels.shape.num_elements())

    def make(
        self, columns: Columns, keys: Keys, run: Run, counted: npt.NDArray[np.bool_] | None = None
    ) -> Made:
        """Decodes the pictures of samples, and counts the rows that are `counted`, or all. Unless
        `is_complete`, no row is done, and the graph's columns hold the pixels."""
        fields = self._fields(columns)
        contents = fields[self._field]
        sizes, pixels, done, cut_off = self._decode(contents, keys, run, counted)
        if self.is_complete:
            others = read_only(fields)
            if not done.all():
                others = {name: values.copy() for name, values in fields.items()}
            left = select_rows(columns, ~done)
            return Made(done, {**others, self._field: pixels}, left, cut_off[~done])
        if self._source.parsed:  # or the field is a part of a record
            columns = {**columns, self._field: np.where(done, np.array(b"", object), contents)}
        left = {**columns, _PIXELS: pixels, _IS_DECODED: done}
        if self._chain.measure:
            left[_SIZE] = sizes
        return Made(np.zeros(len(keys), np.bool_), {}, left, cut_off)

    def look(self, columns: Columns) -> npt.NDArray[np.uint8]:
        """Returns the status of each picture, for `count`; decodes only the first pixel."""
        contents = self._fields(columns)[self._field]
        count = len(contents)
        windows = np.tile(np.array([0, 0, 1, 1], np.int32), (count, 1))
        flips, pixels = np.zeros(count, np.uint8), np.empty((count, 1, 1, 3), np.uint8)
        status: npt.NDArray[np.uint8] = self._decoder.decode_batch(
            contents.tolist(), windows, flips, pixels, 1
        )
        return status

    def count(self, status: npt.NDArray[np.uint8]) -> None:
        """Counts pictures that were looked at."""
        self.counts.add(self._words(status).tolist())

    def sample_function(self) -> SampleFunction:
        """Returns the function from the graph's columns of a sample to its fields."""
        source, chain, field = self._source, self._chain, self._field
        if self.is_complete:
            return sample_graph.sample_function(source, self.steps)

        def transform(columns: Sample, key: tf.Tensor) -> Sample:
            sample = dict(source.parse({name: columns[name] for name in source.columns}))

            def decode() -> tf.Tensor:
                made = sample
                for step in self.steps:
                    made = sample_graph.apply_step(step, made, key)
                return made[field]

            if (measure := chain.measure) is not None:
                size = tf.cond(
                    columns[_IS_DECODED],
                    lambda: columns[_SIZE],
                    lambda: measure.apply(sample, key)[measure.result],
                )
                sample[measure.result] = size
            pixels = tf.cond(columns[_IS_DECODED], lambda: columns[_PIXELS], decode)
            sample[field] = tf.ensure_shape(pixels, self._pixels.shape)
            for step in chain.rest:
                sample = sample_graph.apply_step(step, sample, key)
            return sample

        return transform

    def _fields(self, columns: Columns) -> Columns:
        """Returns the fields of samples; only the picture's if the graph parses them too."""
        if self._source.parsed:
            return columns
        count = len(next(iter(columns.values())))
        try:
            fields = self._parse(columns, np.zeros((count, 2), np.int64))
        except (tf.errors.OpError, UnicodeError):  # a bad sample, which fails in the graph too
            return {self._field: np.full(count, b"", object)}
        return {name: np.asarray(values) for name, values in fields.items()}

    def _decode(
        self,
        contents: npt.NDArray[Any],
        keys: Keys,
        run: Run,
        counted: npt.NDArray[np.bool_] | None,
    ) -> tuple[
        npt.NDArray[np.int32],
        npt.NDArray[np.uint8],
        npt.NDArray[np.bool_],
        npt.NDArray[np.bool_],
    ]:
        """Returns the sizes of pictures, their pixels, whether each is decoded, and whether it is
        truncated."""
        images = self._decoder.read_headers(contents.tolist())
        turns = self._orientations(contents)
        images[turns >= SIDEWAYS] = images[turns >= SIDEWAYS, ::-1]
        draws = self._take(images, keys)
        limits = ((images, self._chain.decode.max_pixels), (draws.parts[:, :2], MAX_PIXELS))
        are_large = np.logical_or(*(sizes.prod(1, dtype=np.int64) > most for sizes, most in limits))
        records = np.where(are_large, np.array(b"", object), contents).tolist()
        pixels = np.empty((len(records), *self._pixels.shape), np.uint8)
        status = self._decoder.decode_batch(
            records,
            draws.windows,
            draws.flips,
            pixels,
            _thread_count(),
            run=run,
            parts=draws.parts,
            orientations=turns,
            antialias=self._chain.antialias,
        )
        words = np.where(are_large, _LARGE, self._words(status))
        self.counts.add(words.tolist() if counted is None else words[counted].tolist())
        cut_off = words == _DAMAGED
        cut_off[cut_off] = [is_cut_off(content) for content in contents[cut_off]]
        return images, pixels, status == 0, cut_off

    def _take(self, images: npt.NDArray[np.int32], keys: Keys) -> Draws:
        """Returns what the chain takes of images. If only the size decides, it calls TensorFlow
        once for each size: a call takes a millisecond while other threads decode."""
        if self._chain.is_random:
            return self._draw(images, keys)
        numbers, draws = self._taken
        sizes = [*map(tuple, images.tolist())]
        if new := [*{*sizes} - numbers.keys()]:
            if len(numbers) > _MAX_SIZES:
                new, numbers, draws = [*{*sizes}], {}, _NO_DRAWS
            added = self._draw(np.array(new, np.int32), np.zeros((len(new), 2), np.int64))
            draws = Draws(*map(np.concatenate, zip(draws, added, strict=True)))
            numbers = {**numbers, **{size: n for n, size in enumerate(new, len(numbers))}}
            self._taken = numbers, draws
        rows = [numbers[size] for size in sizes]
        return Draws(*(values[rows] for values in draws))

    def _orientations(self, contents: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        """Returns the orientation by which to turn each picture."""
        is_applied = self._chain.decode.exif == "apply"
        return orientations(contents) if is_applied else np.full(len(contents), UPRIGHT, np.uint8)

    def _words(self, status: npt.NDArray[np.uint8]) -> npt.NDArray[np.object_]:
        return np.array(self._decoder.STATUS, object)[status]

    @cached_property
    def _draw(self) -> Callable[[Any, Any], Draws]:
        signature = [tf.TensorSpec([None, 2], tf.int32), tf.TensorSpec([None, 2], tf.int64)]
        traced = tf.function(self._chain.draw, input_signature=signature, autograph=False)
        draw = traced.get_concrete_function()
        return lambda images, keys: Draws(*map(np.asarray, draw(images, keys)))

    @cached_property
    def _parse(self) -> ColumnsFunction:
        def parse(columns: Sample, _: tf.Tensor) -> Sample:
            fields = self._source.parse(columns)
            return fields if self.is_complete else {self._field: fields[self._field]}

        return sample_graph.columns_function(self._source.columns, parse, parallel=False)
