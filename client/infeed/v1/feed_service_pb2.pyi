from infeed.v1 import spec_pb2 as _spec_pb2
from infeed.v1 import stream_pb2 as _stream_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Compression(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPRESSION_UNSPECIFIED: _ClassVar[Compression]
    COMPRESSION_NONE: _ClassVar[Compression]
    COMPRESSION_SNAPPY: _ClassVar[Compression]
    COMPRESSION_AUTO: _ClassVar[Compression]
COMPRESSION_UNSPECIFIED: Compression
COMPRESSION_NONE: Compression
COMPRESSION_SNAPPY: Compression
COMPRESSION_AUTO: Compression

class ListPipelinesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListPipelinesResponse(_message.Message):
    __slots__ = ("pipelines", "next_page_token", "control_plane", "broken")
    PIPELINES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CONTROL_PLANE_FIELD_NUMBER: _ClassVar[int]
    BROKEN_FIELD_NUMBER: _ClassVar[int]
    pipelines: _containers.RepeatedCompositeFieldContainer[_spec_pb2.Pipeline]
    next_page_token: str
    control_plane: str
    broken: _containers.RepeatedCompositeFieldContainer[BrokenPipeline]
    def __init__(self, pipelines: _Optional[_Iterable[_Union[_spec_pb2.Pipeline, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., control_plane: _Optional[str] = ..., broken: _Optional[_Iterable[_Union[BrokenPipeline, _Mapping]]] = ...) -> None: ...

class BrokenPipeline(_message.Message):
    __slots__ = ("name", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class GetPipelineRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetPipelineResponse(_message.Message):
    __slots__ = ("pipeline", "checksum")
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    pipeline: _spec_pb2.Pipeline
    checksum: int
    def __init__(self, pipeline: _Optional[_Union[_spec_pb2.Pipeline, _Mapping]] = ..., checksum: _Optional[int] = ...) -> None: ...

class RegisterDatasetRequest(_message.Message):
    __slots__ = ("pipeline", "fingerprint", "batch_size", "seed", "epochs", "remainder", "compression", "shard_hint")
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    REMAINDER_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    SHARD_HINT_FIELD_NUMBER: _ClassVar[int]
    pipeline: str
    fingerprint: str
    batch_size: int
    seed: int
    epochs: int
    remainder: _spec_pb2.Remainder
    compression: Compression
    shard_hint: bool
    def __init__(self, pipeline: _Optional[str] = ..., fingerprint: _Optional[str] = ..., batch_size: _Optional[int] = ..., seed: _Optional[int] = ..., epochs: _Optional[int] = ..., remainder: _Optional[_Union[_spec_pb2.Remainder, str]] = ..., compression: _Optional[_Union[Compression, str]] = ..., shard_hint: bool = ...) -> None: ...

class RegisterDatasetResponse(_message.Message):
    __slots__ = ("dispatcher_address", "dataset_id", "tensorflow_version", "seed", "batch_size", "may_mask", "lost_workers")
    DISPATCHER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DATASET_ID_FIELD_NUMBER: _ClassVar[int]
    TENSORFLOW_VERSION_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAY_MASK_FIELD_NUMBER: _ClassVar[int]
    LOST_WORKERS_FIELD_NUMBER: _ClassVar[int]
    dispatcher_address: str
    dataset_id: str
    tensorflow_version: str
    seed: int
    batch_size: int
    may_mask: bool
    lost_workers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, dispatcher_address: _Optional[str] = ..., dataset_id: _Optional[str] = ..., tensorflow_version: _Optional[str] = ..., seed: _Optional[int] = ..., batch_size: _Optional[int] = ..., may_mask: bool = ..., lost_workers: _Optional[_Iterable[str]] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("pipeline", "fingerprint", "seed", "lineage")
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    pipeline: str
    fingerprint: str
    seed: int
    lineage: _spec_pb2.Lineage
    def __init__(self, pipeline: _Optional[str] = ..., fingerprint: _Optional[str] = ..., seed: _Optional[int] = ..., lineage: _Optional[_Union[_spec_pb2.Lineage, _Mapping]] = ...) -> None: ...

class DescribeSlotsRequest(_message.Message):
    __slots__ = ("run", "start", "count", "draws")
    RUN_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DRAWS_FIELD_NUMBER: _ClassVar[int]
    run: Run
    start: int
    count: int
    draws: bool
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ..., start: _Optional[int] = ..., count: _Optional[int] = ..., draws: bool = ...) -> None: ...

class DescribeSlotsResponse(_message.Message):
    __slots__ = ("slots",)
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    slots: _containers.RepeatedCompositeFieldContainer[Slot]
    def __init__(self, slots: _Optional[_Iterable[_Union[Slot, _Mapping]]] = ...) -> None: ...

class Slot(_message.Message):
    __slots__ = ("position", "epoch", "sample_id", "file", "offset", "key", "fields", "draws")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    DRAWS_FIELD_NUMBER: _ClassVar[int]
    position: int
    epoch: int
    sample_id: int
    file: str
    offset: int
    key: _containers.RepeatedScalarFieldContainer[int]
    fields: str
    draws: _containers.RepeatedCompositeFieldContainer[Draw]
    def __init__(self, position: _Optional[int] = ..., epoch: _Optional[int] = ..., sample_id: _Optional[int] = ..., file: _Optional[str] = ..., offset: _Optional[int] = ..., key: _Optional[_Iterable[int]] = ..., fields: _Optional[str] = ..., draws: _Optional[_Iterable[_Union[Draw, _Mapping]]] = ...) -> None: ...

class Draw(_message.Message):
    __slots__ = ("transform", "parameters")
    TRANSFORM_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    transform: str
    parameters: str
    def __init__(self, transform: _Optional[str] = ..., parameters: _Optional[str] = ...) -> None: ...

class FindSampleRequest(_message.Message):
    __slots__ = ("run", "sample", "epochs")
    RUN_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    run: Run
    sample: str
    epochs: int
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ..., sample: _Optional[str] = ..., epochs: _Optional[int] = ...) -> None: ...

class FindSampleResponse(_message.Message):
    __slots__ = ("samples", "more")
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    samples: _containers.RepeatedCompositeFieldContainer[FoundSample]
    more: bool
    def __init__(self, samples: _Optional[_Iterable[_Union[FoundSample, _Mapping]]] = ..., more: bool = ...) -> None: ...

class FoundSample(_message.Message):
    __slots__ = ("sample_id", "file", "positions", "epochs", "is_removed")
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    IS_REMOVED_FIELD_NUMBER: _ClassVar[int]
    sample_id: int
    file: str
    positions: _containers.RepeatedScalarFieldContainer[int]
    epochs: _containers.RepeatedScalarFieldContainer[int]
    is_removed: bool
    def __init__(self, sample_id: _Optional[int] = ..., file: _Optional[str] = ..., positions: _Optional[_Iterable[int]] = ..., epochs: _Optional[_Iterable[int]] = ..., is_removed: bool = ...) -> None: ...
