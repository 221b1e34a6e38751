"""A checkpoint as a tar archive: whole, in ranges, and only what is in the storage."""

import io
import os
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
from sqlalchemy import select

from service.api.trials import checkpoints
from service.errors import NotFound
from service.operations.checkpoints import folder_archive, stored_folder
from service.operations.checkpoints.checkpoint_archive import open_archive
from service.operations.checkpoints.folder_archive import FolderArchive
from service.operations.checkpoints.local_folder import LocalFolder
from service.operations.checkpoints.stored_folder import RemoteFolder
from service.settings import Settings
from service.store.tables import CheckpointRow
from tests.api.trials.archive_contents import contents
from tests.conftest import Api, Held, changed, running
from tests.timeouts import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.slow

FILES = {"model/weights.bin": os.urandom(70_000), "state.json": b"{}", "empty": b""}


def storage_of(service: Api) -> Path:
    return Path(service.app.state.context.settings.storage)


def saved(service: Api) -> tuple[Held, Path]:
    """A trial that has saved `FILES`, and the directory with them."""
    held = service.ask(str(service.create()["name"]))
    assert held
    folder = storage_of(service) / held.assignment["run_name"] / "checkpoint_1"
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    held.report(accuracy=0.5, checkpoint=str(folder))
    return held, folder


def fetched(service: Api, held: Held, headers: dict[str, str] | None = None, step: int = 1) -> httpx.Response:
    return service.http.get(f"/v1/trials/{held.trial}/checkpoints/{step}/archive", headers=headers)


def test_a_question_mark_in_the_name_of_a_saved_directory_is_part_of_it(service: Api) -> None:
    held, folder = saved(service)
    renamed = folder.rename(folder.with_name("lr=0.1?epoch=2"))
    held.report(accuracy=0.5, checkpoint=str(renamed))
    found = contents(fetched(service, held, step=2).content)
    assert {name: found[f"trial-0-step-2/{name}"] for name in FILES} == FILES


def test_the_archive_has_the_files_that_were_saved(service: Api) -> None:
    held, _ = saved(service)
    answer = fetched(service, held)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-tar")
    assert answer.headers["content-disposition"] == 'attachment; filename="trial-0-step-1.tar"'
    assert contents(answer.content) == {
        "trial-0-step-1": None,
        "trial-0-step-1/model": None,
        **{f"trial-0-step-1/{name}": content for name, content in FILES.items()},
    }


def test_a_download_goes_on_where_it_was_cut_off(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_archive, "CHUNK_BYTES", 1000)
    held, _ = saved(service)
    whole = fetched(service, held)
    size, etag = len(whole.content), whole.headers["etag"]
    for start, stop in ((0, size), (1, 2), (1700, 40_000), (size - 1, size)):
        part = fetched(service, held, {"Range": f"bytes={start}-{stop - 1}", "If-Range": etag})
        assert (part.status_code, part.headers["content-range"]) == (206, f"bytes {start}-{stop - 1}/{size}")
        assert part.content == whole.content[start:stop]
    assert fetched(service, held, {"Range": "bytes=40000-"}).content == whole.content[40_000:]
    assert fetched(service, held, {"Range": "bytes=40000-999999999"}).content == whole.content[40_000:]


def test_a_range_after_the_end_is_refused_with_the_size(service: Api) -> None:
    held, _ = saved(service)
    size = len(fetched(service, held).content)
    answer = fetched(service, held, {"Range": f"bytes={size}-"})
    assert (answer.status_code, answer.headers["content-range"]) == (416, f"bytes */{size}")
    assert (answer.json()["type"], answer.json()["size"]) == ("urn:paceline:error:range-not-satisfiable", size)


@pytest.mark.parametrize("header", ["bytes=9-3", "bytes=-5", "bytes=0-1,5-6", "lines=1-2", "bytes=a-", "bytes=-"])
def test_other_ranges_are_ignored(service: Api, header: str) -> None:
    held, _ = saved(service)
    assert fetched(service, held, {"Range": header}).status_code == 200


def test_when_the_files_have_changed_everything_is_sent_again(service: Api) -> None:
    held, folder = saved(service)
    etag = fetched(service, held).headers["etag"]
    (folder / "state.json").write_bytes(b"{1}")
    answer = fetched(service, held, {"Range": "bytes=5-", "If-Range": etag})
    assert answer.status_code == 200
    assert answer.headers["etag"] != etag
    assert contents(answer.content)["trial-0-step-1/state.json"] == b"{1}"


def test_nothing_outside_of_the_storage_is_read(service: Api, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    held, folder = saved(service)
    (folder / "file").symlink_to(secret / "key")
    (folder / "directory").symlink_to(secret)
    os.mkfifo(folder / "pipe")
    found = contents(fetched(service, held).content)
    assert {"trial-0-step-1/file", "trial-0-step-1/directory"} < found.keys()
    assert b"secret" not in found.values()
    assert not any("key" in name or "pipe" in name for name in found)
    storage = storage_of(service)
    (storage / "link").symlink_to(secret)
    for step, path in enumerate((secret, storage / "link", storage / ".." / ".." / "secret", Path("/saved")), 2):
        held.report(accuracy=0.5, checkpoint=str(path))
        answer = fetched(service, held, step=step)
        assert answer.status_code in {404, 409}
        assert str(path) in answer.json()["detail"]


def test_what_is_not_there_is_named(service: Api, tmp_path: Path) -> None:
    held, folder = saved(service)
    assert "no checkpoint at step 7" in fetched(service, held, step=7).json()["detail"]
    folder.rename(tmp_path / "elsewhere")
    answer = fetched(service, held)
    assert (answer.status_code, str(folder) in answer.json()["detail"]) == (404, True)
    held.report(accuracy=0.5, checkpoint=f"{storage_of(service)}/2")
    assert "no checkpoint at step 1" in fetched(service, held).json()["detail"]


def test_a_storage_that_cannot_be_read_is_a_temporary_error(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: LocalFolder) -> Any:
        raise OSError("gone")

    held, _ = saved(service)
    monkeypatch.setattr(LocalFolder, "entries", fail)
    answer = fetched(service, held)
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:paceline:error:storage-unavailable")
    assert answer.headers["retry-after"]


@pytest.mark.parametrize("change", [lambda file: file.unlink(), lambda file: os.truncate(file, 10)])
def test_a_file_that_changes_meanwhile_cuts_the_archive_off(
    service: Api, monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    held, folder = saved(service)
    entries = LocalFolder.entries

    def then_change(self: LocalFolder) -> Any:
        found = entries(self)
        change(folder / "model" / "weights.bin")
        return found

    monkeypatch.setattr(LocalFolder, "entries", then_change)
    with pytest.raises(httpx.RemoteProtocolError):
        fetched(service, held)


def test_a_directory_that_is_exchanged_for_a_link_meanwhile_is_not_followed(
    service: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a worker can while the service reads, to have it send what only the service may read."""
    held, folder = saved(service)
    secret = tmp_path / "secret"
    shutil.copytree(folder / "model", secret)  # the same names, sizes and times
    (secret / "weights.bin").write_bytes(b"s" * 70_000)
    at = (folder / "model" / "weights.bin").stat().st_mtime_ns
    os.utime(secret / "weights.bin", ns=(at, at))
    entries = LocalFolder.entries

    def then_exchange(self: LocalFolder) -> Any:
        found = entries(self)
        (folder / "model").rename(folder / "was")
        (folder / "model").symlink_to(secret)
        return found

    monkeypatch.setattr(LocalFolder, "entries", then_exchange)
    with pytest.raises(httpx.RemoteProtocolError):
        fetched(service, held)


def test_a_folder_above_that_becomes_a_link_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "storage/run/checkpoint").mkdir(parents=True)
    (tmp_path / "secret/checkpoint/key").mkdir(parents=True)
    folder = LocalFolder(tmp_path / "storage/run/checkpoint", tmp_path / "storage")
    (tmp_path / "storage/run").rename(tmp_path / "was")
    (tmp_path / "storage/run").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="run"):
        folder.entries()


def test_links_that_lead_in_a_circle_are_no_folder(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(NotFound):
        LocalFolder(tmp_path / "circle/checkpoint", tmp_path).entries()


def test_only_so_many_are_downloaded_at_once(service: Api) -> None:
    held, _ = saved(service)
    downloads = service.app.state.context.downloads
    downloads.count += 32
    answer = fetched(service, held)
    downloads.count -= 32
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:paceline:error:busy")
    assert fetched(service, held).status_code == 200
    wait_until(lambda: not downloads.count)


def test_a_download_that_still_opens_its_archive_counts(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    held, _ = saved(service)
    downloads = service.app.state.context.downloads
    opening, opened = threading.Event(), threading.Event()

    def open_slowly(*arguments: Any) -> FolderArchive:
        opening.set()
        assert opened.wait(PATIENCE_SECONDS)
        return open_archive(*arguments)

    monkeypatch.setattr(checkpoints, "open_archive", open_slowly)
    downloads.count += 31
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(fetched, service, held)
        assert opening.wait(PATIENCE_SECONDS)
        assert fetched(service, held).status_code == 503
        opened.set()
        assert first.result().status_code == 200
    wait_until(lambda: downloads.count == 31)
    monkeypatch.setattr(checkpoints, "open_archive", Mock(side_effect=NotFound("gone")))
    assert fetched(service, held).status_code == 404
    assert downloads.count == 31


def test_a_folder_of_any_other_file_system_is_read_in_the_same_way(service: Api) -> None:
    """All of pyarrow's file systems have one interface; the local one stands for a bucket here."""
    _, folder = saved(service)
    local, remote = LocalFolder(folder, folder), RemoteFolder(folder.as_uri())
    for one in (local.entries(), remote.entries()):
        assert {entry.name: entry.size for entry in one if not entry.is_directory} == {
            name: len(content) for name, content in FILES.items()
        }
        assert [entry.name for entry in one if entry.is_directory] == ["model"]
        assert all(abs(entry.modified_at - time.time()) < 600 for entry in one)
    assert local.entries() == remote.entries()
    for entry in remote.entries():
        if not entry.is_directory:
            with closing(remote.open(entry)) as file:
                file.seek(1)
                assert file.read(100_000) == FILES[entry.name][1:]


class EmptyBucket(BaseHTTPRequestHandler):
    """A server that has nothing, and keeps the headers of the calls in the list of its class."""

    calls: list[str]

    def do_GET(self) -> None:
        self.calls.append(str(self.headers))
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815 - the library's name

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def a_bucket() -> Iterator[tuple[str, list[str]]]:
    """The query that leads to an own server, and the calls that it gets."""
    calls: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Bucket", (EmptyBucket,), {"calls": calls})) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"?scheme=http&endpoint_override=127.0.0.1%3A{server.server_port}", calls
        server.shutdown()
        thread.join()


def test_credentials_go_to_the_server_of_the_storage_only(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """So does the URI that an earlier version has stored, which took any query in a report."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    with a_bucket() as (own, calls), a_bucket() as (other, stray_calls):
        with running(changed(settings, storage=f"s3://bucket/checkpoints{own}")) as service:
            held = service.ask(str(service.create()["name"]))
            assert held
            held.report(accuracy=0.5, checkpoint="s3://bucket/checkpoints/x")
            with service.app.state.context.database.write() as session:
                session.scalars(select(CheckpointRow)).one().uri += other
            assert fetched(service, held).status_code == 404
        assert stray_calls == []
        assert "Credential=key/" in calls[0]


class BusyFile(io.BytesIO):
    """As a file in a bucket with too many calls: of each three readings, two fail, and leave the place unknown."""

    calls = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.calls += 1
        if self.calls % 3:
            self.seek(0)
            raise OSError("AWS Error INTERNAL_FAILURE during GetObject operation")
        return super().read(size)


def test_a_file_in_a_busy_bucket_is_read_again_where_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_folder, "PAUSES_SECONDS", (0.0, 0.0))
    file = stored_folder.RemoteFile(BusyFile(b"0123456789"))
    file.seek(2)
    assert [file.read(3), file.read(3), file.read(3)] == [b"234", b"567", b"89"]
    monkeypatch.setattr(stored_folder, "PAUSES_SECONDS", (0.0,))
    with pytest.raises(OSError, match="GetObject"):
        file.read(3)
