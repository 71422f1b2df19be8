from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Nothing(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DispatcherVersion(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class Workers(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    def __init__(self, workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ...) -> None: ...

class Worker(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class WorkerTasks(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[Task]
    def __init__(self, tasks: _Optional[_Iterable[_Union[Task, _Mapping]]] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("worker_address", "task_id", "iteration_id")
    WORKER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ITERATION_ID_FIELD_NUMBER: _ClassVar[int]
    worker_address: str
    task_id: int
    iteration_id: int
    def __init__(self, worker_address: _Optional[str] = ..., task_id: _Optional[int] = ..., iteration_id: _Optional[int] = ...) -> None: ...

class DatasetQuestion(_message.Message):
    __slots__ = ("dataset_id",)
    DATASET_ID_FIELD_NUMBER: _ClassVar[int]
    dataset_id: str
    def __init__(self, dataset_id: _Optional[str] = ...) -> None: ...

class DatasetMetadata(_message.Message):
    __slots__ = ("element_spec",)
    ELEMENT_SPEC_FIELD_NUMBER: _ClassVar[int]
    element_spec: bytes
    def __init__(self, element_spec: _Optional[bytes] = ...) -> None: ...

class WorkerHeartbeat(_message.Message):
    __slots__ = ("worker_address", "current_tasks", "worker_tags")
    WORKER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_TASKS_FIELD_NUMBER: _ClassVar[int]
    WORKER_TAGS_FIELD_NUMBER: _ClassVar[int]
    worker_address: str
    current_tasks: _containers.RepeatedScalarFieldContainer[int]
    worker_tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, worker_address: _Optional[str] = ..., current_tasks: _Optional[_Iterable[int]] = ..., worker_tags: _Optional[_Iterable[str]] = ...) -> None: ...

class WorkerHeartbeatAnswer(_message.Message):
    __slots__ = ("new_tasks",)
    NEW_TASKS_FIELD_NUMBER: _ClassVar[int]
    new_tasks: _containers.RepeatedCompositeFieldContainer[AssignedTask]
    def __init__(self, new_tasks: _Optional[_Iterable[_Union[AssignedTask, _Mapping]]] = ...) -> None: ...

class AssignedTask(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: int
    def __init__(self, task_id: _Optional[int] = ...) -> None: ...

class WorkerUpdate(_message.Message):
    __slots__ = ("worker_address", "updates")
    WORKER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    worker_address: str
    updates: _containers.RepeatedCompositeFieldContainer[TaskProgress]
    def __init__(self, worker_address: _Optional[str] = ..., updates: _Optional[_Iterable[_Union[TaskProgress, _Mapping]]] = ...) -> None: ...

class TaskProgress(_message.Message):
    __slots__ = ("task_id", "completed")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    task_id: int
    completed: bool
    def __init__(self, task_id: _Optional[int] = ..., completed: bool = ...) -> None: ...
