from infeed.v1 import spec_pb2 as _spec_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Checksum(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHECKSUM_UNSPECIFIED: _ClassVar[Checksum]
    CHECKSUM_XXH3: _ClassVar[Checksum]
    CHECKSUM_OFF: _ClassVar[Checksum]
    CHECKSUM_AUTO: _ClassVar[Checksum]

class FinishPlacement(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_PLACEMENT_UNSPECIFIED: _ClassVar[FinishPlacement]
    FINISH_PLACEMENT_TRAINER: _ClassVar[FinishPlacement]
    FINISH_PLACEMENT_SERVER: _ClassVar[FinishPlacement]
CHECKSUM_UNSPECIFIED: Checksum
CHECKSUM_XXH3: Checksum
CHECKSUM_OFF: Checksum
CHECKSUM_AUTO: Checksum
FINISH_PLACEMENT_UNSPECIFIED: FinishPlacement
FINISH_PLACEMENT_TRAINER: FinishPlacement
FINISH_PLACEMENT_SERVER: FinishPlacement

class StreamBatchesRequest(_message.Message):
    __slots__ = ("open", "batch", "report", "free")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    open: StreamOpen
    batch: BatchRequest
    report: TrainerReport
    free: FreeBlocks
    def __init__(self, open: _Optional[_Union[StreamOpen, _Mapping]] = ..., batch: _Optional[_Union[BatchRequest, _Mapping]] = ..., report: _Optional[_Union[TrainerReport, _Mapping]] = ..., free: _Optional[_Union[FreeBlocks, _Mapping]] = ...) -> None: ...

class StreamOpen(_message.Message):
    __slots__ = ("pipeline", "fingerprint", "seed", "batch_size", "finish", "epochs", "rank", "world_size", "feed_id", "job_name", "remainder", "blocks", "checksum", "lineage")
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    FEED_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_NAME_FIELD_NUMBER: _ClassVar[int]
    REMAINDER_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    pipeline: str
    fingerprint: str
    seed: int
    batch_size: int
    finish: FinishPlacement
    epochs: int
    rank: int
    world_size: int
    feed_id: str
    job_name: str
    remainder: _spec_pb2.Remainder
    blocks: int
    checksum: Checksum
    lineage: _spec_pb2.Lineage
    def __init__(self, pipeline: _Optional[str] = ..., fingerprint: _Optional[str] = ..., seed: _Optional[int] = ..., batch_size: _Optional[int] = ..., finish: _Optional[_Union[FinishPlacement, str]] = ..., epochs: _Optional[int] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., feed_id: _Optional[str] = ..., job_name: _Optional[str] = ..., remainder: _Optional[_Union[_spec_pb2.Remainder, str]] = ..., blocks: _Optional[int] = ..., checksum: _Optional[_Union[Checksum, str]] = ..., lineage: _Optional[_Union[_spec_pb2.Lineage, _Mapping]] = ...) -> None: ...

class BatchRequest(_message.Message):
    __slots__ = ("request_id", "start", "count", "min_position_count", "step_end", "traceparent", "tracestate", "free_blocks")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    MIN_POSITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    STEP_END_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    TRACESTATE_FIELD_NUMBER: _ClassVar[int]
    FREE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    start: int
    count: int
    min_position_count: int
    step_end: int
    traceparent: str
    tracestate: str
    free_blocks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_id: _Optional[int] = ..., start: _Optional[int] = ..., count: _Optional[int] = ..., min_position_count: _Optional[int] = ..., step_end: _Optional[int] = ..., traceparent: _Optional[str] = ..., tracestate: _Optional[str] = ..., free_blocks: _Optional[_Iterable[int]] = ...) -> None: ...

class FreeBlocks(_message.Message):
    __slots__ = ("blocks",)
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    blocks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, blocks: _Optional[_Iterable[int]] = ...) -> None: ...

class StreamBatchesResponse(_message.Message):
    __slots__ = ("opened", "header", "end", "heartbeat", "draining", "report", "chunk")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    opened: StreamOpened
    header: BatchHeader
    end: EndOfData
    heartbeat: Heartbeat
    draining: Draining
    report: ServerReport
    chunk: Chunk
    def __init__(self, opened: _Optional[_Union[StreamOpened, _Mapping]] = ..., header: _Optional[_Union[BatchHeader, _Mapping]] = ..., end: _Optional[_Union[EndOfData, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., draining: _Optional[_Union[Draining, _Mapping]] = ..., report: _Optional[_Union[ServerReport, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ...) -> None: ...

class StreamOpened(_message.Message):
    __slots__ = ("fingerprint", "spec", "batch_size", "seed", "batch_stride", "report_interval_seconds", "has_checksums", "request", "shared_memory", "checksum", "segments")
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    BATCH_STRIDE_FIELD_NUMBER: _ClassVar[int]
    REPORT_INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HAS_CHECKSUMS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SHARED_MEMORY_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    fingerprint: str
    spec: _containers.RepeatedCompositeFieldContainer[_spec_pb2.FieldSpec]
    batch_size: int
    seed: int
    batch_stride: int
    report_interval_seconds: float
    has_checksums: bool
    request: StreamOpen
    shared_memory: SharedMemory
    checksum: Checksum
    segments: int
    def __init__(self, fingerprint: _Optional[str] = ..., spec: _Optional[_Iterable[_Union[_spec_pb2.FieldSpec, _Mapping]]] = ..., batch_size: _Optional[int] = ..., seed: _Optional[int] = ..., batch_stride: _Optional[int] = ..., report_interval_seconds: _Optional[float] = ..., has_checksums: bool = ..., request: _Optional[_Union[StreamOpen, _Mapping]] = ..., shared_memory: _Optional[_Union[SharedMemory, _Mapping]] = ..., checksum: _Optional[_Union[Checksum, str]] = ..., segments: _Optional[int] = ...) -> None: ...

class SharedMemory(_message.Message):
    __slots__ = ("key", "blocks", "block_bytes", "refusal")
    KEY_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_BYTES_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    blocks: int
    block_bytes: int
    refusal: str
    def __init__(self, key: _Optional[bytes] = ..., blocks: _Optional[int] = ..., block_bytes: _Optional[int] = ..., refusal: _Optional[str] = ...) -> None: ...

class BatchHeader(_message.Message):
    __slots__ = ("request_id", "start", "epoch", "payload_size", "layouts", "sample_ids", "mask", "position_count", "checksum", "block", "payload_checksum")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_SIZE_FIELD_NUMBER: _ClassVar[int]
    LAYOUTS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_IDS_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    POSITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    start: int
    epoch: int
    payload_size: int
    layouts: _containers.RepeatedCompositeFieldContainer[TensorLayout]
    sample_ids: _containers.RepeatedScalarFieldContainer[int]
    mask: _containers.RepeatedScalarFieldContainer[bool]
    position_count: int
    checksum: int
    block: int
    payload_checksum: int
    def __init__(self, request_id: _Optional[int] = ..., start: _Optional[int] = ..., epoch: _Optional[int] = ..., payload_size: _Optional[int] = ..., layouts: _Optional[_Iterable[_Union[TensorLayout, _Mapping]]] = ..., sample_ids: _Optional[_Iterable[int]] = ..., mask: _Optional[_Iterable[bool]] = ..., position_count: _Optional[int] = ..., checksum: _Optional[int] = ..., block: _Optional[int] = ..., payload_checksum: _Optional[int] = ...) -> None: ...

class TensorLayout(_message.Message):
    __slots__ = ("offset", "size")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    size: int
    def __init__(self, offset: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("checksum", "data")
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    checksum: int
    data: bytes
    def __init__(self, checksum: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class EndOfData(_message.Message):
    __slots__ = ("request_id", "position_count", "checksum")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    position_count: int
    checksum: int
    def __init__(self, request_id: _Optional[int] = ..., position_count: _Optional[int] = ..., checksum: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Draining(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TrainerReport(_message.Message):
    __slots__ = ("seconds", "steps", "wait_seconds", "starved_steps", "receive_seconds", "cpu_seconds", "finish_seconds", "streams", "bytes", "total_steps", "ready_batches", "position", "slow_connection", "slow_rate", "other_rate")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STARVED_STEPS_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FINISH_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    READY_BATCHES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SLOW_CONNECTION_FIELD_NUMBER: _ClassVar[int]
    SLOW_RATE_FIELD_NUMBER: _ClassVar[int]
    OTHER_RATE_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    steps: int
    wait_seconds: float
    starved_steps: int
    receive_seconds: float
    cpu_seconds: float
    finish_seconds: float
    streams: int
    bytes: int
    total_steps: int
    ready_batches: int
    position: int
    slow_connection: str
    slow_rate: float
    other_rate: float
    def __init__(self, seconds: _Optional[float] = ..., steps: _Optional[int] = ..., wait_seconds: _Optional[float] = ..., starved_steps: _Optional[int] = ..., receive_seconds: _Optional[float] = ..., cpu_seconds: _Optional[float] = ..., finish_seconds: _Optional[float] = ..., streams: _Optional[int] = ..., bytes: _Optional[int] = ..., total_steps: _Optional[int] = ..., ready_batches: _Optional[int] = ..., position: _Optional[int] = ..., slow_connection: _Optional[str] = ..., slow_rate: _Optional[float] = ..., other_rate: _Optional[float] = ...) -> None: ...

class ServerReport(_message.Message):
    __slots__ = ("seconds", "batches", "no_request_seconds", "no_budget_seconds", "source_seconds", "transform_seconds", "encode_seconds", "send_seconds", "cpu_seconds", "cores", "bytes", "worst", "available_cores", "memory_bytes", "memory_limit_bytes", "processes", "process_id", "shortage_seconds", "python_workers", "python_seconds", "slowest_sample_seconds", "slowest_sample", "is_sequential", "python_samples", "computed_samples", "shared_samples", "recomputed_samples", "cache_hits", "cache_misses", "repair_seconds", "unsent_seconds")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    NO_REQUEST_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NO_BUDGET_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TRANSFORM_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ENCODE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SEND_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    WORST_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_CORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SHORTAGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PYTHON_WORKERS_FIELD_NUMBER: _ClassVar[int]
    PYTHON_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SLOWEST_SAMPLE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SLOWEST_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    IS_SEQUENTIAL_FIELD_NUMBER: _ClassVar[int]
    PYTHON_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SHARED_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTED_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    CACHE_HITS_FIELD_NUMBER: _ClassVar[int]
    CACHE_MISSES_FIELD_NUMBER: _ClassVar[int]
    REPAIR_SECONDS_FIELD_NUMBER: _ClassVar[int]
    UNSENT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    batches: int
    no_request_seconds: float
    no_budget_seconds: float
    source_seconds: float
    transform_seconds: float
    encode_seconds: float
    send_seconds: float
    cpu_seconds: float
    cores: float
    bytes: int
    worst: RankReport
    available_cores: float
    memory_bytes: int
    memory_limit_bytes: int
    processes: int
    process_id: int
    shortage_seconds: float
    python_workers: int
    python_seconds: float
    slowest_sample_seconds: float
    slowest_sample: int
    is_sequential: bool
    python_samples: int
    computed_samples: int
    shared_samples: int
    recomputed_samples: int
    cache_hits: int
    cache_misses: int
    repair_seconds: float
    unsent_seconds: float
    def __init__(self, seconds: _Optional[float] = ..., batches: _Optional[int] = ..., no_request_seconds: _Optional[float] = ..., no_budget_seconds: _Optional[float] = ..., source_seconds: _Optional[float] = ..., transform_seconds: _Optional[float] = ..., encode_seconds: _Optional[float] = ..., send_seconds: _Optional[float] = ..., cpu_seconds: _Optional[float] = ..., cores: _Optional[float] = ..., bytes: _Optional[int] = ..., worst: _Optional[_Union[RankReport, _Mapping]] = ..., available_cores: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., memory_limit_bytes: _Optional[int] = ..., processes: _Optional[int] = ..., process_id: _Optional[int] = ..., shortage_seconds: _Optional[float] = ..., python_workers: _Optional[int] = ..., python_seconds: _Optional[float] = ..., slowest_sample_seconds: _Optional[float] = ..., slowest_sample: _Optional[int] = ..., is_sequential: bool = ..., python_samples: _Optional[int] = ..., computed_samples: _Optional[int] = ..., shared_samples: _Optional[int] = ..., recomputed_samples: _Optional[int] = ..., cache_hits: _Optional[int] = ..., cache_misses: _Optional[int] = ..., repair_seconds: _Optional[float] = ..., unsent_seconds: _Optional[float] = ...) -> None: ...

class RankReport(_message.Message):
    __slots__ = ("rank", "report")
    RANK_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    rank: int
    report: TrainerReport
    def __init__(self, rank: _Optional[int] = ..., report: _Optional[_Union[TrainerReport, _Mapping]] = ...) -> None: ...
