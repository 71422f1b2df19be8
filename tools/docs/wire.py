"""Table of the recorded releases: what each one's schema has, from tests/compatibility."""

from __future__ import annotations

from google.protobuf import descriptor_pb2
from tests.compatibility import recording
from tools.docs.markdown import Table, code


def tables() -> dict[str, Table]:
    """Returns the table of releases, the oldest first."""
    rows, before = [], frozenset[str]()
    for version in recording.versions():
        files = descriptor_pb2.FileDescriptorSet.FromString(recording.load(version).schema).file
        methods = [method.name for file in files for item in file.service for method in item.method]
        messages = [message for file in files for message in file.message_type]
        fields = sum(len(message.field) for message in messages)
        added = ", ".join(code(name) for name in methods if name not in before)
        (package,) = {file.package for file in files}
        rows.append((version, code(package), added or "none", str(len(messages)), str(fields)))
        before = frozenset(methods)
    columns = ("release", "protocol package", "methods that it added", "messages", "fields")
    return {"wire.releases": Table(columns, rows)}
