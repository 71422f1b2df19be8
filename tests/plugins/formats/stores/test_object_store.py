"""Objects in stores: exact reads through faults, listings, and errors with their remedies."""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.http_faults import Request, Response
from tests.harness.object_server import ObjectServer
from tests.harness.spawned import SpawnedProcess
from tests.harness.tfrecords import example, write_records
from tests.harness.waiting import wait_until

from infeed.shared.errors import SourceError
from infeed_formats.stores import object_store, requests
from infeed_formats.tfrecord.index import build_index
from infeed_formats.tfrecord.source import TFRecordSource
from infeed_server.sources.images.source import ImagesSource
from infeed_server.storage.files import list_files, read_bytes, read_stamp
from infeed_server.storage.ranges import RangeReader

SIZE = 3 << 20
CONTENT = random.Random(1).randbytes(SIZE)


def reader(store: ObjectServer, content: bytes = CONTENT) -> RangeReader:
    store.objects["bkt/a/x y.bin"] = content
    return RangeReader(list_files(["s3://bkt/a/*"]))


def read(ranges: RangeReader, begin: int, size: int) -> bytes:
    (content,) = ranges.read(np.array([0]), np.array([begin]), np.array([size]))
    return bytes(content)


def test_ranges_are_exact_through_faults(store: ObjectServer) -> None:
    ranges = reader(store)
    faults = store.faults
    faults.error_rate = faults.cut_rate = faults.slow_rate = 0.2
    faults.slow_seconds = 0.01
    draw = random.Random(2)
    begins = np.array([draw.randrange(SIZE) for _ in range(100)])
    sizes = np.array([draw.randrange(min(4000, SIZE - begin)) for begin in begins.tolist()])
    before, began = len(store.requests), requests.traffic()
    contents = ranges.read(np.zeros(100, np.int64), begins, sizes)
    asked, received = np.subtract(requests.traffic(), began)
    assert 0 < asked <= len(store.requests) - before  # obstore repeats some
    assert sum(map(len, contents)) <= received <= store.sent_bytes
    for begin, size, content in zip(begins.tolist(), sizes.tolist(), contents, strict=True):
        assert content == CONTENT[begin : begin + size]


def test_sources_are_the_same_as_local(store: ObjectServer, tmp_path: Path) -> None:
    draw = random.Random(3)
    (tmp_path / "images/cat").mkdir(parents=True)
    for number in range(40):
        (tmp_path / f"images/cat/{number}.jpg").write_bytes(draw.randbytes(5000))
    records = [example({"x": [draw.randbytes(3000)]}) for _ in range(100)]
    write_records(tmp_path / "a.tfrecord", records)
    store.put_folder(tmp_path, "bkt")
    store.faults.error_rate = store.faults.cut_rate = 0.05
    indices = np.random.default_rng(4).permutation(40)
    sources = []
    for root in (str(tmp_path), "s3://bkt"):
        images = ImagesSource(images=f"{root}/images", labels="folders", identity="size").open()
        features: Any = {"x": "bytes"}
        tfrecord = TFRecordSource(tfrecord=f"{root}/*.tfrecord", features=features).open()
        sources.append((images, tfrecord))
    for local, remote in zip(*sources, strict=True):
        assert local.identity == remote.identity
        expected, found = local.read(indices), remote.read(indices)
        for name, values in expected.items():
            assert values.tolist() == found[name].tolist()
        local.close()
        remote.close()


def test_index_beside_an_object_saves_its_scan(store: ObjectServer, tmp_path: Path) -> None:
    write_records(tmp_path / "a.tfrecord", [example({"x": [n]}) for n in range(1000)])
    index = build_index(list_files([f"{tmp_path}/a.tfrecord"]))
    store.put_folder(tmp_path, "bkt")
    assert "bkt/a.tfrecord.infeed-index.npz" in store.objects
    remote = build_index(list_files(["s3://bkt/*"]))
    assert remote.identity == index.identity
    assert store.count("GET", "a.tfrecord") == store.count("GET", ".npz") == 1


def test_replaced_object_is_a_changed_file(store: ObjectServer) -> None:
    ranges = reader(store)
    assert read(ranges, 5, 10) == CONTENT[5:15]
    assert read(ranges, 5, 0) == b""  # which no range is
    store.objects["bkt/a/x y.bin"] = CONTENT[::-1]
    with pytest.raises(SourceError, match=r"x y\.bin changed since it was opened") as caught:
        read(ranges, 5, 10)
    assert caught.value.metadata["fault"] == "changed"


@pytest.mark.parametrize("etag", ['W/"{}"', ""])
def test_object_without_strong_etag(store: ObjectServer, etag: str) -> None:
    store.etag_format = etag
    ranges = reader(store)
    assert read(ranges, 5, 10) == CONTENT[5:15]
    store.objects["bkt/a/x y.bin"] = CONTENT[1:]
    with pytest.raises(SourceError, match="changed since"):
        read(ranges, 5, 10)


def test_store_that_is_away_and_returns(store: ObjectServer, retry_delays: list[float]) -> None:
    ranges = reader(store)
    store.faults.error_rate = 1.0
    with pytest.raises(SourceError, match=r"cannot read s3://.*\(7 attempts\), so the batch"):
        read(ranges, 5, 10)
    assert len(retry_delays) == 6
    store.faults.error_rate = 0.0
    assert read(ranges, 5, 10) == CONTENT[5:15]


def test_file_of_a_web_server(store: ObjectServer) -> None:
    store.objects["bkt/a/x y.bin"] = CONTENT
    ranges = RangeReader(list_files([f"{store.url}/bkt/a/x y.bin"]))
    assert read(ranges, SIZE - 9, 9) == CONTENT[-9:]
    store.faults.ignores_range = True
    with pytest.raises(SourceError, match="ignores Range"):
        read(ranges, 5, 10)
    with pytest.raises(SourceError, match="a web server lists no files; name each"):
        list_files([f"{store.url}/bkt/*"])


def test_listing_takes_no_request_per_object(store: ObjectServer) -> None:
    store.objects.update((f"bkt/many/{number:04}.jpg", b"%d" % number) for number in range(2500))
    source = ImagesSource(images="s3://bkt/many").open()
    assert len(source) == 2500
    assert len(store.requests) == 3
    store.faults.cut_rate = 0.3  # a page that is cut off is requested again
    assert len(list_files(["s3://bkt/many/*9.jpg"])) == 250


@pytest.mark.parametrize(
    "pattern", ["*", "**", "a/*", "a/**", "**/*.x", "*/c.x", ".*", "a[1].x", "[ab]*.x", "a/.h/*"]
)
def test_patterns_match_as_on_a_disk(store: ObjectServer, tmp_path: Path, pattern: str) -> None:
    for name in ("a.x", "b.x", ".c.x", "a[1].x", "a1.x", "a/c.x", "a/.c.x", "a/d/e.x", "a/.h/c.x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    store.put_folder(tmp_path, "bkt")
    store.objects["bkt/a/"] = b""  # as consoles make a folder
    local = [file.path for file in list_files([f"{tmp_path}/{pattern}"])]
    found = [file.path for file in list_files([f"s3://bkt/{pattern}"])]
    assert found == [path.replace(str(tmp_path), "s3://bkt") for path in local]


@pytest.mark.parametrize("name", ["new\nline", "/x", "../y", "./z", "tab\tx"])
def test_key_that_cannot_be_read_is_named(store: ObjectServer, name: str) -> None:
    store.objects |= {f"bkt/d/bad/{name}": b"x", "bkt/d/a.x": b"a", "bkt/e/b.x": b"b"}
    for pattern in ("s3://bkt/d/*.x", "s3://bkt/e/**"):  # it cannot match these
        assert [file.stamp.size for file in list_files([pattern])] == [1]
    for pattern in ("s3://bkt/d/**", "s3://bkt/d/bad/*", f"s3://bkt/d/bad/{name}"):
        with pytest.raises(SourceError, match=r"the key 'd/bad/.+ has an empty part") as caught:
            list_files([pattern])
        assert "rename that object, or name a folder" in caught.value.message


def test_no_match_names_what_is_there(store: ObjectServer) -> None:
    store.objects["bkt/a/b/c.tfrecord"] = b""
    with pytest.raises(SourceError, match=r"no file matches.*'s3://bkt/a', which holds b$"):
        list_files(["s3://bkt/a/q/*.tfrecord"])
    with pytest.raises(SourceError, match="'s3://bkt/a' is a folder; name its files"):
        list_files(["s3://bkt/a"])
    with pytest.raises(SourceError, match="no such bucket; correct its name"):
        list_files(["s3://other/a/*"])
    with pytest.raises(SourceError, match="no such bucket"):
        list_files(["s3://other/a/b"])
    with pytest.raises(SourceError, match="cannot read 's3://bkt/none': no such object"):
        read_bytes("s3://bkt/none")


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "AccessDenied", "the store denies access; grant the right to read and list"),
        (403, "RequestTimeTooSkewed", "this host.s clock differs"),
        (403, "InvalidAccessKeyId", "rejects the credentials; set credentials"),
        (403, "SignatureDoesNotMatch", "rejects the credentials"),
        (401, "Unauthorized", "rejects the credentials"),
        (301, "PermanentRedirect", "another region; set AWS_REGION"),
        (404, "NoSuchBucket", "no such bucket"),
    ],
)
def test_refusals_have_a_remedy(store: ObjectServer, status: int, code: str, message: str) -> None:
    store.refusals["bkt"] = (status, code)
    with pytest.raises(SourceError, match=rf"cannot list 's3://bkt/\*': .*{message}"):
        list_files(["s3://bkt/*"])


def test_store_that_does_not_answer(store: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = reader(store)
    monkeypatch.setattr(object_store, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr("infeed_server.storage.faults._PATIENCE_SECONDS", 0.08)
    store.faults.delay = 1000.0
    with pytest.raises(SourceError, match=r"no answer within 0.05 s; check the.* attempts"):
        read(ranges, 5, 10)
    with pytest.raises(SourceError, match=r"no answer within 0\.05 s"):
        read_stamp("s3://bkt/a")


def test_wrong_endpoint_and_credentials(
    store: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store.faults.is_down = True
    with pytest.raises(SourceError, match="cannot be reached; check the endpoint"):
        list_files(["s3://bkt/*"])
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "none.json"))
    with pytest.raises(SourceError, match="the credentials file cannot be used"):
        list_files(["gs://bkt/*"])
    with pytest.raises(SourceError, match="set AZURE_STORAGE_ACCOUNT_NAME"):
        list_files(["az://bkt/*"])


def test_absent_credentials(monkeypatch: pytest.MonkeyPatch, store: ObjectServer) -> None:
    monkeypatch.delenv("AWS_SKIP_SIGNATURE")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"{store.url}/metadata")
    with pytest.raises(SourceError, match="neither the environment nor this host"):
        list_files(["s3://bkt/*"])


def _read_in_child(queue: Any) -> None:
    try:
        queue.put(read_bytes("s3://bkt/a/x y.bin"))
    except SourceError as error:
        queue.put(error.message)
    queue.close()
    queue.join_thread()


def in_fork() -> Any:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_read_in_child, args=(queue,))
    child.start()
    found = queue.get(timeout=60)
    child.join()
    assert child.exitcode == 0
    return found


def test_forked_child_reads_unless_its_parent_did(store: ObjectServer) -> None:
    store.objects["bkt/a/x y.bin"] = CONTENT
    # In another process: other tests have used obstore in this one.
    script = Path(__file__).with_name("forked_reads.py")
    done = subprocess.run([sys.executable, str(script)], check=True, stdout=subprocess.PIPE)
    assert done.stdout.split() == [hashlib.md5(CONTENT).hexdigest().encode()] * 2
    reader(store)
    assert "it was forked from process" in in_fork()


def test_close_ends_a_read_without_answer(store: ObjectServer) -> None:
    ranges = reader(store)
    store.faults.delay = 1000.0
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(read, ranges, 5, 10)
        wait_until(lambda: store.count("GET", "x%20y.bin") == 1, "the range is requested")
        ranges.close()
        with pytest.raises(SourceError, match=r"x y\.bin: the source is closed"):
            result.result()
    with pytest.raises(SourceError, match="the source is closed"):
        read(ranges, 5, 10)


def test_answers_while_a_process_ends(
    store: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Threads of obstore that return to Python then print errors, or abort it.
    store.objects["bkt/a"] = b"content"
    answers, is_ending = store._handle, asyncio.Event()

    async def answer(request: Request) -> Response:
        await is_ending.wait()
        return await answers(request)

    monkeypatch.setattr(store, "_handle", answer)
    script = Path(__file__).with_name("ending_reads.py")
    ended = SpawnedProcess([sys.executable, str(script)], tmp_path / "log", reads_stdin=True)
    wait_until(lambda: store.count("GET", "bkt/a") == 50, "all ranges are requested")
    ended.send_line("end")
    ended.wait_until(lambda: "ending" in ended.stdout, "the process ends")
    store._loop.call_soon_threadsafe(is_ending.set)
    assert (ended.wait(), ended.stderr) == (0, "")
