"""Backends of the user's Python code: a thread of the server, or worker processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np

from infeed.shared.errors import InfeedError, SourceError
from infeed.shared.spec.dtypes import Array
from infeed_server.processes.worker_pool import (
    MAX_REPEATS,
    PoolClosedError,
    WorkerEndedError,
    WorkerPool,
)
from infeed_server.sources.python.dataset import DatasetOptions, Description, example_indices
from infeed_server.sources.python.functions import Chain, FunctionOptions, Parts
from infeed_server.sources.python.pending import PendingRequest
from infeed_server.sources.python.runner import Runner, ThreadRunner
from infeed_server.sources.python.values import Field
from infeed_server.sources.python.work_meter import WorkMeter
from infeed_server.sources.python.worker import (
    Apply,
    Describe,
    DescribeResults,
    DescribeSamples,
    Open,
    Read,
    WorkerDataset,
    WorkerFunctions,
)

_MAX_LISTED = 8
"""Samples that an error lists."""


Answer: TypeAlias = Callable[[], Any]
"""Waits for the answer of a request, and returns it or raises its error."""


class _Backend:
    """Sends requests in parts, so that one batch uses all processes."""

    handler: ClassVar[type[Callable[[Any], Any]]]
    """Class of what answers the requests, in a worker process or on a thread."""

    def __init__(self, label: str, processes: int, argument: Any) -> None:
        """`label` names the user's code in messages; `argument` is that of the handler."""
        self.label = label
        path = f"{self.handler.__module__}:{self.handler.__name__}"
        try:
            self.runner: Runner = (
                WorkerPool(f"worker of {label}", processes, path, argument)
                if processes
                else ThreadRunner(self.handler, argument)
            )
        except OSError as error:
            raise self._not_started(error) from error
        self._parts = max(1, processes)
        self.meter = WorkMeter(self._parts)

    def close(self) -> None:
        self.runner.close()

    def _read_parts(
        self,
        indices: Sequence[int],
        fields: Sequence[Field],
        request: Callable[[slice], Any],
    ) -> dict[str, Array]:
        size = -(-len(indices) // self._parts)
        begins = range(0, len(indices), size) if indices else (0,)
        parts = [slice(begin, begin + size) for begin in begins]
        answers = [self._submit(request(part), indices[part]) for part in parts]
        read = [
            self._result(answer, indices[part]) for answer, part in zip(answers, parts, strict=True)
        ]
        for part, each in zip(parts, read, strict=True):
            samples = len(indices[part])
            self.meter.on_read(samples, each.slowest_sample, each.slowest_seconds)
        columns = [each.columns for each in read]
        if len(columns) == 1:
            return dict(columns[0])
        return {
            field.name: np.concatenate([each[field.name] for each in columns]) for field in fields
        }

    def _describe(self, request: Any, examples: Sequence[tuple[int, Any]]) -> Any:
        """Returns the answer to a request about samples that are read to find the fields.

        If it ends the workers, `examples`, the index of each and the request about it alone, show
        which sample is the cause.
        """
        try:
            return self._answer(self._submit(request))
        except WorkerEndedError as error:
            ending = error
        for index, alone in examples:
            try:
                self._answer(self._submit(alone))
            except WorkerEndedError as error:
                raise SourceError(
                    f"sample {index} of {self.label} is read at start, to find the fields, and "
                    f"ends each worker process that reads it, the last of {1 + MAX_REPEATS} with "
                    f"{error}; its own output may say why. Repair that sample, leave it out, or "
                    "declare the fields, so that no sample is read at start: fields: ...",
                    file=self.label,
                ) from None
            except InfeedError:
                continue  # one that only raises is a bad sample
        raise self._ended(ending, [index for index, _ in examples])

    def _submit(self, request: Any, indices: Sequence[int] = ()) -> Answer:
        """Sends a request about these samples; returns the function that waits for its answer."""
        pending = PendingRequest(self._subject(indices))

        def begin(pid: int) -> None:
            self.meter.begin(pending)
            pending.begin(pid)

        try:
            answer = self.runner.submit(request, begin)
        except PoolClosedError:
            raise self._closed() from None
        answer.add_done_callback(lambda _: self.meter.end(pending))
        return partial(pending.wait, answer)

    def _answer(self, answer: Answer) -> Any:
        """Raises `WorkerEndedError`."""
        try:
            return answer()
        except PoolClosedError:
            raise self._closed() from None
        except OSError as error:
            raise self._not_started(error) from error

    def _result(self, answer: Answer, indices: Sequence[int] = ()) -> Any:
        try:
            return self._answer(answer)
        except WorkerEndedError as error:
            raise self._ended(error, indices) from None

    def _ended(self, error: WorkerEndedError, indices: Sequence[int]) -> SourceError:
        task = f"{'read' if indices else 'opened'} {self._subject(indices)}"
        return SourceError(
            f"each worker process that {task} ended, the last of {1 + MAX_REPEATS} "
            f"with {error}; its own output may say why",
            file=self.label,
        )

    def _subject(self, indices: Sequence[int]) -> str:
        if not indices:
            return self.label
        more = ", ..." if len(indices) > _MAX_LISTED else ""
        return f"samples {', '.join(map(str, indices[:_MAX_LISTED]))}{more} of {self.label}"

    def _not_started(self, error: OSError) -> SourceError:
        return SourceError(
            f"no worker process of {self.label} can be started: {error.strerror}; give fewer "
            "processes, or raise the limits of open files and of processes",
            file=self.label,
        )

    def _closed(self) -> SourceError:
        return SourceError(
            f"{self.label} is not read any more: the server is shutting down", file=self.label
        )


class DatasetBackend(_Backend):
    """A data set, opened by a thread or by each of several worker processes."""

    handler = WorkerDataset

    def __init__(self, options: DatasetOptions, processes: int) -> None:
        """Raises the errors of `UserDataset`."""
        super().__init__(options.label, processes, options)
        try:
            opened = self._result(self._submit(Open()))
            examples = [
                (index, Describe(opened, (index,))) for index in example_indices(opened.length)
            ]
            self.description: Description = self._describe(Describe(opened), examples)
        except BaseException:  # also a signal
            self.close()
            raise

    def result_fields(self, functions: tuple[FunctionOptions, ...]) -> tuple[Field, ...]:
        """Returns the fields of the functions' results."""
        examples = [
            (index, DescribeResults(self.description, functions, (index,)))
            for index in example_indices(self.description.length)
        ]
        request = DescribeResults(self.description, functions)
        fields: tuple[Field, ...] = self._describe(request, examples)
        return fields

    def read(
        self, indices: Sequence[int], mapped: tuple[Chain, Array] | None = None
    ) -> dict[str, Array]:
        """Raises the errors of `UserDataset.read`."""
        if mapped is None:
            return self._read_parts(
                indices,
                self.description.fields,
                lambda part: Read(indices[part], self.description),
            )
        chain, keys = mapped
        return self._read_parts(
            indices,
            chain.fields,
            lambda part: Read(indices[part], self.description, (chain, keys[part])),
        )


class FunctionBackend(_Backend):
    """Functions of samples that the server has read."""

    handler = WorkerFunctions

    def __init__(self, label: str, processes: int) -> None:
        """`label` is the name of the source in messages."""
        super().__init__(label, processes, None)

    def result_fields(
        self, functions: tuple[FunctionOptions, ...], samples: Sequence[tuple[int, Parts]]
    ) -> tuple[Field, ...]:
        """Returns the fields of the functions' results, from those of some samples."""
        examples = [
            (index, DescribeSamples(functions, [(index, sample)])) for index, sample in samples
        ]
        fields: tuple[Field, ...] = self._describe(DescribeSamples(functions, samples), examples)
        return fields

    def apply(
        self, chain: Chain, indices: Sequence[int], samples: Sequence[Parts], keys: Array
    ) -> dict[str, Array]:
        """Returns the columns of the chain's results."""

        def request(part: slice) -> Apply:
            return Apply(chain, self.label, indices[part], samples[part], keys[part])

        return self._read_parts(indices, chain.fields, request)
