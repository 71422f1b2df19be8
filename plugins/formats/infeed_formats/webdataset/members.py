"""Tar file format: members of USTAR, GNU and PAX tars. Each header's checksum is verified, and tars
without random access are refused.

member = headers that extend the next one: name, size · header: 512 bytes · data, padded to 512
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from infeed.shared.errors import SourceError
from infeed_server.storage.files import is_remote
from infeed_server.storage.handles import FileHandle

_log = logging.getLogger(__name__)

BLOCK = 512
"""Bytes; headers and data begin at multiples of it."""

_SCAN_WINDOW = 8 << 20
"""Bytes read at once while scanning small members."""
_SMALL = 4 << 10
"""Bytes; members up to this size, such as labels, are read with their headers."""
_SKIP_WINDOW = 2 * _SMALL
"""Bytes read at once while scanning large members, whose data is skipped."""
_SKIP_THRESHOLD = 64 << 10
"""Bytes; longer data of a local file is skipped, as one small read costs less than all of it."""
_MAX_EXTENSION = 1 << 20
"""Maximum bytes of a header that extends another; names are shorter."""

_EMPTY = bytes(BLOCK)

_COMPRESSIONS = {
    b"\x1f\x8b": "gunzip",
    b"\x28\xb5\x2f\xfd": "zstd -d",
    b"BZh": "bunzip2",
    b"\xfd7zXZ\x00": "xz -d",
}
"""First bytes of a compressed file → the command that unpacks it."""

_FILES, _LINKS = b"0\x007", b"12"
_WITHOUT_DATA = b"3456V"
"""Devices, directories, pipes and volume names."""
_NAME, _LINK_NAME, _EXTENSION, _DEFAULTS = b"L", b"K", b"xX", b"g"


class Member(NamedTuple):
    """A file in a tar. `begin` is the offset of its first header, `offset` that of its data.
    `content` holds small data and is otherwise empty."""

    name: str
    begin: int
    offset: int
    size: int
    content: bytes = b""


class TruncatedTar(Exception):  # noqa: N818 - not an error where the whole samples are kept
    """The file ends before the end mark. `offset` is where the last member begins."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class MemberScan:
    """An iterator over the members of a tar, from an offset. Raises `SourceError` for a damaged or
    unsupported header, and `TruncatedTar`."""

    def __init__(
        self,
        handle: FileHandle,
        path: str,
        size: int,
        on_position: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._handle = handle
        self._path = path
        self._size = size
        self._on_position = on_position
        self._window, self._window_begin = b"", 0
        self._skips = False
        self._members = 0
        self._defaults: dict[str, str] = {}

    def members(self, begin: int = 0) -> Iterator[Member]:
        self._refuse_compressed()
        offset, extensions = begin, dict(self._defaults)
        while (header := self._read_header(offset, begin)) != _EMPTY:
            size = self._check(header, offset)
            kind, data = header[156:157], offset + BLOCK
            if kind in (_NAME, _LINK_NAME, _DEFAULTS) or kind in _EXTENSION:
                self._extend(extensions, kind, data, size, begin)
                offset = _padded(data + size)
                continue
            name = extensions.get("path") or _name(header)
            if "\0" in name:
                raise self._error(offset, f"the name {name!r} of a member is damaged")
            if kind in _FILES and not name.endswith("/"):  # a folder before USTAR
                if "size" in extensions:
                    size = self._number(extensions["size"], 10, offset)
                self._skips = size > _SKIP_THRESHOLD and not is_remote(self._path)
                if data + size > self._size:
                    yield Member(name, begin, data, self._size - data)
                    raise TruncatedTar(begin)
                content = self._read(data, size, begin) if size <= _SMALL else b""
                yield Member(name, begin, data, size, content)
                self._members += 1
                data += size
            elif kind in _LINKS:
                text = f"the member {name!r} is a link; write the tar with --dereference and "
                raise self._error(offset, f"{text}--hard-dereference")
            elif kind not in _FILES + _WITHOUT_DATA:
                text = f"the member {name!r} has the unknown type {kind!r}, such as sparse; "
                raise self._error(offset, f"{text}write the tar as --format=pax without --sparse")
            offset = begin = _padded(data)
            extensions = dict(self._defaults)
            self._on_position(min(offset, self._size))
        self._require_end(offset)

    def _refuse_compressed(self) -> None:
        head = self._handle.read(0, max(map(len, _COMPRESSIONS)))
        for magic, command in _COMPRESSIONS.items():
            if head.startswith(magic):
                text = f"{self._path} is compressed, so it has no random access; unpack it: "
                raise SourceError(f"{text}{command} < OLD > NEW", file=self._path, offset=0)

    def _read_header(self, offset: int, begin: int) -> bytes:
        """Reads a block. A file may end after a member, which GNU tar and `tarfile` also accept."""
        if offset != self._size or offset != begin or not offset:
            return self._read(offset, BLOCK, begin)
        _log.warning("%s ends without an end mark; is it whole?", self._path)
        return _EMPTY

    def _read(self, offset: int, size: int, begin: int) -> bytes:
        """Reads header bytes of the member that begins at `begin`."""
        end = offset + size
        if end > self._size:
            raise TruncatedTar(begin)
        start = self._window_begin
        if not start <= offset <= end <= start + len(self._window):
            count = max(size, _SKIP_WINDOW if self._skips else _SCAN_WINDOW)
            self._window = self._handle.read(offset, min(count, self._size - offset))
            self._window_begin = start = offset
            if len(self._window) < size:
                text = f"{self._path} became shorter while it was indexed"
                raise SourceError(text, file=self._path)
        return self._window[offset - start : end - start]

    def _check(self, header: bytes, offset: int) -> int:
        """Verifies a header's checksum and returns the size in it."""
        try:
            stored = int(header[148:156].strip(b" \0"), 8)
        except ValueError:
            stored = -1
        # The checksum's own bytes count as spaces.
        if sum(header) - sum(header[148:156]) + 8 * ord(" ") != stored:
            raise self._error(offset, "the checksum of a header does not match")
        field = header[124:136]
        if field[0] & 0x80:  # base 256; a negative number becomes too large
            return self._number(str(int.from_bytes(field, "big") - (1 << 95)), 10, offset)
        return self._number(field.strip(b" \0").decode("ascii", "replace") or "0", 8, offset)

    def _number(self, text: str, base: int, offset: int) -> int:
        """Returns a size. Raises `SourceError` if it is not a number."""
        try:
            size = int(text, base)
        except ValueError:
            size = -1
        if not 0 <= size < 1 << 62:
            raise self._error(offset, f"the size of a member is {text!r}")
        return size

    def _extend(
        self, extensions: dict[str, str], kind: bytes, data: int, size: int, begin: int
    ) -> None:
        """Reads a header's properties of the next member, or of all that follow."""
        if size > _MAX_EXTENSION:
            raise self._error(data, f"a header of {size} bytes extends another")
        content = self._read(data, size, begin)
        if kind == _NAME:
            extensions["path"] = os.fsdecode(content.partition(b"\0")[0])
        elif kind != _LINK_NAME:
            records = self._records(content, data)
            extensions.update(records)
            if kind == _DEFAULTS:
                self._defaults.update(records)
            if sparse := [key for key in records if key.startswith("GNU.sparse")]:
                text = f"a member is sparse ({sparse[0]}); write the tar without --sparse"
                raise self._error(data, text)

    def _records(self, content: bytes, offset: int) -> dict[str, str]:
        """Returns the records of a PAX header, each `LENGTH KEY=VALUE` and a newline."""
        records, begin = {}, 0
        while begin < len(content):
            digits, space, _ = content[begin : begin + 20].partition(b" ")
            end = begin + int(digits) if space and digits.isdigit() else begin
            key, equals, value = content[begin + len(digits) + 1 : end - 1].partition(b"=")
            if not equals or content[end - 1 : end] != b"\n":
                raise self._error(offset, "a record of a PAX header is damaged")
            records[os.fsdecode(key)] = os.fsdecode(value)
            begin = end
        return records

    def _require_end(self, offset: int) -> None:
        """Raises `SourceError` if data follows the end mark, as it would be left out."""
        end = offset
        while end < self._size:
            rest = self._handle.read(end, min(_SCAN_WINDOW, self._size - end))
            if not rest or rest.strip(b"\0"):
                text = "data follows the tar's end mark; unpack joined tars and write one"
                raise self._error(offset, text)
            end += len(rest)

    def _error(self, offset: int, problem: str) -> SourceError:
        text = f"{self._path} at byte {offset}: {problem}; {self._members} whole members precede it"
        if offset == 0:
            text = f"{self._path} is not a tar file, or its first header is damaged: {problem}"
        return SourceError(text, file=self._path, offset=offset)


def _name(header: bytes) -> str:
    name = header[:100].partition(b"\0")[0]
    # GNU tar has other fields instead of the prefix.
    prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return os.fsdecode(prefix + b"/" + name if prefix else name)


def _padded(offset: int) -> int:
    return -(-offset // BLOCK) * BLOCK
