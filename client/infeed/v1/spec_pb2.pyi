from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DataType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DATA_TYPE_UNSPECIFIED: _ClassVar[DataType]
    DATA_TYPE_BOOL: _ClassVar[DataType]
    DATA_TYPE_INT8: _ClassVar[DataType]
    DATA_TYPE_INT16: _ClassVar[DataType]
    DATA_TYPE_INT32: _ClassVar[DataType]
    DATA_TYPE_INT64: _ClassVar[DataType]
    DATA_TYPE_UINT8: _ClassVar[DataType]
    DATA_TYPE_UINT16: _ClassVar[DataType]
    DATA_TYPE_UINT32: _ClassVar[DataType]
    DATA_TYPE_UINT64: _ClassVar[DataType]
    DATA_TYPE_FLOAT16: _ClassVar[DataType]
    DATA_TYPE_FLOAT32: _ClassVar[DataType]
    DATA_TYPE_FLOAT64: _ClassVar[DataType]
    DATA_TYPE_BFLOAT16: _ClassVar[DataType]
    DATA_TYPE_BYTES: _ClassVar[DataType]

class Order(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ORDER_UNSPECIFIED: _ClassVar[Order]
    ORDER_DETERMINISTIC: _ClassVar[Order]
    ORDER_NONE: _ClassVar[Order]

class Delivery(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DELIVERY_UNSPECIFIED: _ClassVar[Delivery]
    DELIVERY_EXACTLY_ONCE: _ClassVar[Delivery]
    DELIVERY_AT_MOST_ONCE: _ClassVar[Delivery]

class Resume(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESUME_UNSPECIFIED: _ClassVar[Resume]
    RESUME_CONSTANT_TIME: _ClassVar[Resume]
    RESUME_REPLAY: _ClassVar[Resume]
    RESUME_NONE: _ClassVar[Resume]

class Remainder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REMAINDER_UNSPECIFIED: _ClassVar[Remainder]
    REMAINDER_DROP: _ClassVar[Remainder]
    REMAINDER_PAD: _ClassVar[Remainder]

class RemainderScope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REMAINDER_SCOPE_UNSPECIFIED: _ClassVar[RemainderScope]
    REMAINDER_SCOPE_JOB: _ClassVar[RemainderScope]
    REMAINDER_SCOPE_WORKER: _ClassVar[RemainderScope]

class OnError(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_ERROR_UNSPECIFIED: _ClassVar[OnError]
    ON_ERROR_RAISE: _ClassVar[OnError]
    ON_ERROR_SUBSTITUTE: _ClassVar[OnError]
    ON_ERROR_MASK: _ClassVar[OnError]

class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENGINE_UNSPECIFIED: _ClassVar[Engine]
    ENGINE_LOCAL: _ClassVar[Engine]
    ENGINE_TF_DATA_SERVICE: _ClassVar[Engine]
DATA_TYPE_UNSPECIFIED: DataType
DATA_TYPE_BOOL: DataType
DATA_TYPE_INT8: DataType
DATA_TYPE_INT16: DataType
DATA_TYPE_INT32: DataType
DATA_TYPE_INT64: DataType
DATA_TYPE_UINT8: DataType
DATA_TYPE_UINT16: DataType
DATA_TYPE_UINT32: DataType
DATA_TYPE_UINT64: DataType
DATA_TYPE_FLOAT16: DataType
DATA_TYPE_FLOAT32: DataType
DATA_TYPE_FLOAT64: DataType
DATA_TYPE_BFLOAT16: DataType
DATA_TYPE_BYTES: DataType
ORDER_UNSPECIFIED: Order
ORDER_DETERMINISTIC: Order
ORDER_NONE: Order
DELIVERY_UNSPECIFIED: Delivery
DELIVERY_EXACTLY_ONCE: Delivery
DELIVERY_AT_MOST_ONCE: Delivery
RESUME_UNSPECIFIED: Resume
RESUME_CONSTANT_TIME: Resume
RESUME_REPLAY: Resume
RESUME_NONE: Resume
REMAINDER_UNSPECIFIED: Remainder
REMAINDER_DROP: Remainder
REMAINDER_PAD: Remainder
REMAINDER_SCOPE_UNSPECIFIED: RemainderScope
REMAINDER_SCOPE_JOB: RemainderScope
REMAINDER_SCOPE_WORKER: RemainderScope
ON_ERROR_UNSPECIFIED: OnError
ON_ERROR_RAISE: OnError
ON_ERROR_SUBSTITUTE: OnError
ON_ERROR_MASK: OnError
ENGINE_UNSPECIFIED: Engine
ENGINE_LOCAL: Engine
ENGINE_TF_DATA_SERVICE: Engine

class FieldSpec(_message.Message):
    __slots__ = ("name", "data_type", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    data_type: DataType
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., data_type: _Optional[_Union[DataType, str]] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class FinishTransform(_message.Message):
    __slots__ = ("field", "cast", "normalize", "one_hot", "mix_pairs", "erase")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    CAST_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    ONE_HOT_FIELD_NUMBER: _ClassVar[int]
    MIX_PAIRS_FIELD_NUMBER: _ClassVar[int]
    ERASE_FIELD_NUMBER: _ClassVar[int]
    field: str
    cast: Cast
    normalize: Normalize
    one_hot: OneHot
    mix_pairs: MixPairs
    erase: Erase
    def __init__(self, field: _Optional[str] = ..., cast: _Optional[_Union[Cast, _Mapping]] = ..., normalize: _Optional[_Union[Normalize, _Mapping]] = ..., one_hot: _Optional[_Union[OneHot, _Mapping]] = ..., mix_pairs: _Optional[_Union[MixPairs, _Mapping]] = ..., erase: _Optional[_Union[Erase, _Mapping]] = ...) -> None: ...

class Cast(_message.Message):
    __slots__ = ("data_type",)
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    data_type: DataType
    def __init__(self, data_type: _Optional[_Union[DataType, str]] = ...) -> None: ...

class Normalize(_message.Message):
    __slots__ = ("scale", "mean", "std", "data_type")
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    STD_FIELD_NUMBER: _ClassVar[int]
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    scale: float
    mean: _containers.RepeatedScalarFieldContainer[float]
    std: _containers.RepeatedScalarFieldContainer[float]
    data_type: DataType
    def __init__(self, scale: _Optional[float] = ..., mean: _Optional[_Iterable[float]] = ..., std: _Optional[_Iterable[float]] = ..., data_type: _Optional[_Union[DataType, str]] = ...) -> None: ...

class OneHot(_message.Message):
    __slots__ = ("depth", "data_type", "on_value", "off_value")
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    ON_VALUE_FIELD_NUMBER: _ClassVar[int]
    OFF_VALUE_FIELD_NUMBER: _ClassVar[int]
    depth: int
    data_type: DataType
    on_value: float
    off_value: float
    def __init__(self, depth: _Optional[int] = ..., data_type: _Optional[_Union[DataType, str]] = ..., on_value: _Optional[float] = ..., off_value: _Optional[float] = ...) -> None: ...

class MixPairs(_message.Message):
    __slots__ = ("label", "draws", "partner", "own_share")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    DRAWS_FIELD_NUMBER: _ClassVar[int]
    PARTNER_FIELD_NUMBER: _ClassVar[int]
    OWN_SHARE_FIELD_NUMBER: _ClassVar[int]
    label: str
    draws: str
    partner: str
    own_share: str
    def __init__(self, label: _Optional[str] = ..., draws: _Optional[str] = ..., partner: _Optional[str] = ..., own_share: _Optional[str] = ...) -> None: ...

class Erase(_message.Message):
    __slots__ = ("draws", "value")
    DRAWS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    draws: str
    value: int
    def __init__(self, draws: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

class Guarantee(_message.Message):
    __slots__ = ("order", "delivery", "resume")
    ORDER_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    order: Order
    delivery: Delivery
    resume: Resume
    def __init__(self, order: _Optional[_Union[Order, str]] = ..., delivery: _Optional[_Union[Delivery, str]] = ..., resume: _Optional[_Union[Resume, str]] = ...) -> None: ...

class Lineage(_message.Message):
    __slots__ = ("segments",)
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    def __init__(self, segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("step", "start", "pipeline", "fingerprint", "seed", "batch_size", "world_size", "epoch", "offset", "epoch_end", "sample_count", "shuffle", "removed", "shrinks")
    STEP_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_END_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_COUNT_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    SHRINKS_FIELD_NUMBER: _ClassVar[int]
    step: int
    start: int
    pipeline: str
    fingerprint: str
    seed: int
    batch_size: int
    world_size: int
    epoch: int
    offset: int
    epoch_end: int
    sample_count: int
    shuffle: str
    removed: int
    shrinks: bool
    def __init__(self, step: _Optional[int] = ..., start: _Optional[int] = ..., pipeline: _Optional[str] = ..., fingerprint: _Optional[str] = ..., seed: _Optional[int] = ..., batch_size: _Optional[int] = ..., world_size: _Optional[int] = ..., epoch: _Optional[int] = ..., offset: _Optional[int] = ..., epoch_end: _Optional[int] = ..., sample_count: _Optional[int] = ..., shuffle: _Optional[str] = ..., removed: _Optional[int] = ..., shrinks: bool = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("field", "picture", "kind", "format", "normalized")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    PICTURE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    NORMALIZED_FIELD_NUMBER: _ClassVar[int]
    field: str
    picture: str
    kind: str
    format: str
    normalized: bool
    def __init__(self, field: _Optional[str] = ..., picture: _Optional[str] = ..., kind: _Optional[str] = ..., format: _Optional[str] = ..., normalized: bool = ...) -> None: ...

class FieldClasses(_message.Message):
    __slots__ = ("field", "names")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    field: str
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, field: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("name", "samples")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    name: str
    samples: int
    def __init__(self, name: _Optional[str] = ..., samples: _Optional[int] = ...) -> None: ...

class Pipeline(_message.Message):
    __slots__ = ("name", "element_spec", "wire_spec", "finish_transforms", "sample_count", "fingerprint", "guarantee", "batch_size", "seed", "remainder", "on_error", "batch_stride", "server_version", "engine", "remainder_scope", "source_kind", "shuffle_mode", "lineage", "classes", "parts", "targets")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_SPEC_FIELD_NUMBER: _ClassVar[int]
    WIRE_SPEC_FIELD_NUMBER: _ClassVar[int]
    FINISH_TRANSFORMS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_COUNT_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    GUARANTEE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    REMAINDER_FIELD_NUMBER: _ClassVar[int]
    ON_ERROR_FIELD_NUMBER: _ClassVar[int]
    BATCH_STRIDE_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    REMAINDER_SCOPE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_KIND_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_MODE_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    name: str
    element_spec: _containers.RepeatedCompositeFieldContainer[FieldSpec]
    wire_spec: _containers.RepeatedCompositeFieldContainer[FieldSpec]
    finish_transforms: _containers.RepeatedCompositeFieldContainer[FinishTransform]
    sample_count: int
    fingerprint: str
    guarantee: Guarantee
    batch_size: int
    seed: int
    remainder: Remainder
    on_error: OnError
    batch_stride: int
    server_version: str
    engine: Engine
    remainder_scope: RemainderScope
    source_kind: str
    shuffle_mode: str
    lineage: Lineage
    classes: _containers.RepeatedCompositeFieldContainer[FieldClasses]
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    targets: _containers.RepeatedCompositeFieldContainer[Target]
    def __init__(self, name: _Optional[str] = ..., element_spec: _Optional[_Iterable[_Union[FieldSpec, _Mapping]]] = ..., wire_spec: _Optional[_Iterable[_Union[FieldSpec, _Mapping]]] = ..., finish_transforms: _Optional[_Iterable[_Union[FinishTransform, _Mapping]]] = ..., sample_count: _Optional[int] = ..., fingerprint: _Optional[str] = ..., guarantee: _Optional[_Union[Guarantee, _Mapping]] = ..., batch_size: _Optional[int] = ..., seed: _Optional[int] = ..., remainder: _Optional[_Union[Remainder, str]] = ..., on_error: _Optional[_Union[OnError, str]] = ..., batch_stride: _Optional[int] = ..., server_version: _Optional[str] = ..., engine: _Optional[_Union[Engine, str]] = ..., remainder_scope: _Optional[_Union[RemainderScope, str]] = ..., source_kind: _Optional[str] = ..., shuffle_mode: _Optional[str] = ..., lineage: _Optional[_Union[Lineage, _Mapping]] = ..., classes: _Optional[_Iterable[_Union[FieldClasses, _Mapping]]] = ..., parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., targets: _Optional[_Iterable[_Union[Target, _Mapping]]] = ...) -> None: ...
