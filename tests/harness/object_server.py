"""An object store in memory, with the part of S3's protocol that infeed uses.

Its objects can be read as files of a web server, too. As a process, for benchmarks:
`python -m tests.harness.object_server FOLDER DELAY_SECONDS ERROR_RATE` serves the files of a folder
as the bucket `bench`, prints its URL, and at the end of stdin the number of its requests.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.harness.http_faults import Faults, HttpServer, Request, Response

_TIME = "2026-01-02T03:04:05.678Z"
_HTTP_TIME = "Fri, 02 Jan 2026 03:04:05 GMT"

_PAGE = 1000
"""Objects in one answer to a list request, as in S3."""


class ObjectServer(HttpServer):
    """Buckets, which need no credentials unless their answer is in `refusals`."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        """By `bucket/key`. Another content has another etag."""
        self.etag_format = '"{}"'
        """Without `{}`, all objects have this etag; the empty string: no etag."""
        self.refusals: dict[str, tuple[int, str]] = {}
        """Bucket → status and error code of all answers."""
        super().__init__(self._respond, faults)

    def put_folder(self, folder: Path, bucket: str) -> None:
        """Stores the files below a folder."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.objects[f"{bucket}/{path.relative_to(folder)}"] = path.read_bytes()

    async def _respond(self, request: Request) -> Response:
        url = urlsplit(request.target)
        name, query = unquote(url.path).strip("/"), parse_qs(url.query)
        bucket = name.partition("/")[0]
        if bucket in self.refusals:
            return _error(*self.refusals[bucket])
        if not any(other.startswith(f"{bucket}/") for other in self.objects):
            return _error(404, "NoSuchBucket")
        if request.method == "PUT":
            self.objects[name] = request.body
            return Response(200, self._headers(request.body))
        if "list-type" in query:
            return self._list(bucket, {key: value[0] for key, value in query.items()})
        content = self.objects.get(name)
        if content is None:
            return _error(404, "NoSuchKey")
        headers = self._headers(content)
        if request.headers.get("if-match", headers.get("ETag")) != headers.get("ETag"):
            return _error(412, "PreconditionFailed")
        return _part(request, headers, content)

    def _headers(self, content: bytes) -> dict[str, str]:
        headers = {"Last-Modified": _HTTP_TIME}
        if self.etag_format:
            headers["ETag"] = self._etag(content)
        return headers

    def _etag(self, content: bytes) -> str:
        return self.etag_format.format(hashlib.md5(content).hexdigest())

    def _list(self, bucket: str, query: dict[str, str]) -> Response:
        prefix = f"{bucket}/{query.get('prefix', '')}"
        after = f"{bucket}/{query.get('continuation-token') or query.get('start-after', '')}"
        names = sorted(n for n in self.objects if n.startswith(prefix) and n > after)
        page, entries = names[:_PAGE], ""
        folders = set()
        for name in page:
            content = self.objects[name]
            key = name.partition("/")[2]
            if "delimiter" in query and "/" in name[len(prefix) :]:
                folders.add(f"{key[: key.index('/', len(query.get('prefix', '')))]}/")
                continue
            entries += (
                f"<Contents><Key>{escape(key)}</Key><LastModified>{_TIME}</LastModified>"
                f"<ETag>{escape(self._etag(content))}</ETag><Size>{len(content)}</Size></Contents>"
            )
        entries += "".join(
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in sorted(folders)
        )
        more = "false"
        if len(names) > _PAGE:
            more = "true"
            last = page[-1].partition("/")[2]
            entries += f"<NextContinuationToken>{escape(last)}</NextContinuationToken>"
        text = f"<ListBucketResult>{entries}<IsTruncated>{more}</IsTruncated></ListBucketResult>"
        return Response(200, {"Content-Type": "application/xml"}, text.encode())


def _part(request: Request, headers: dict[str, str], content: bytes) -> Response:
    asked = request.headers.get("range")
    if request.method == "HEAD":
        return Response(200, {**headers, "Content-Length": str(len(content))})
    if asked is None:
        return Response(200, headers, content)
    first, _, last = asked.removeprefix("bytes=").partition("-")
    begin, end = int(first), min(int(last) + 1, len(content))
    if begin >= len(content):
        return _error(416, "InvalidRange")
    place = f"bytes {begin}-{end - 1}/{len(content)}"
    return Response(206, {**headers, "Content-Range": place}, content[begin:end])


def _error(status: int, code: str) -> Response:
    text = f"<Error><Code>{code}</Code><Message>{code} of the test</Message></Error>"
    return Response(status, {"Content-Type": "application/xml"}, text.encode())


def _main(folder: str, delay: str, error_rate: str) -> None:
    with ObjectServer(Faults(float(delay), float(error_rate))) as server:
        server.put_folder(Path(folder), "bench")
        print(server.url, flush=True)
        sys.stdin.read()
        print(server.count("GET"), server.sent_bytes, flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
