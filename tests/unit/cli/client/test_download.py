"""`paceline fetch`: a checkpoint arrives whole, also over a connection that breaks."""

import io
import os
import socket
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from service.cli.client import download
from service.cli.client.client import Client
from service.cli.client.download import CannotFetch, fetch_archive
from tests.unit.cli.canned_service import Answer, answering, problem
from tests.unit.cli.conftest import Run, external, finish_one
from tests.unit.cli.proxy import proxying, with_close

pytestmark = pytest.mark.slow

CONTENT = os.urandom(300_000)


@pytest.fixture
def saved(run: Run, project: Path, url: str) -> tuple[str, str]:
    """An experiment, and its trial with a checkpoint."""
    name = str(external(run, project)["name"])
    storage = httpx.get(f"{url}/v1/agents/any/attempts").json()["storage"]
    folder = Path(storage, name, "checkpoint_1")
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(CONTENT)
    return name, finish_one(url, name, {"outcome": "completed"}, checkpoint=str(folder))


@contextmanager
def breaking_proxy(url: str, *lengths: int) -> Iterator[tuple[str, list[bytes]]]:
    """Yields its URL and the requests for archives. Of the first answers it passes so many bytes, then all."""
    requests: list[bytes] = []

    def pass_on(near: socket.socket, far: socket.socket) -> None:
        request = near.recv(65_536)
        far.sendall(with_close(request))
        left = 1 << 40
        if b"/archive" in request:
            left = dict(enumerate(lengths)).get(len(requests), left)
            requests.append(request.lower())
        while left and (data := far.recv(min(left, 65_536))):
            near.sendall(data)
            left -= len(data)

    with proxying(url, pass_on) as address:
        yield address, requests


def test_the_best_trials_checkpoint_is_fetched_by_the_experiments_name(
    run: Run, saved: tuple[str, str], tmp_path: Path
) -> None:
    name, trial = saved
    ended = run("fetch", name, "--to", str(tmp_path / "models"))
    assert (ended.code, ended.err) == (0, "")
    assert (tmp_path / "models/trial-0-step-1/weights").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["trial-0-step-1"], "nothing else is left"
    again = run("fetch", trial, "--step", "1", "--to", str(tmp_path / "models"))
    assert (again.code, "exists already" in again.err) == (2, True)


@pytest.mark.parametrize("folder", ["out[v2]", "x[", "[", "x[/y]"])
def test_the_printed_path_is_the_one_of_the_directory(
    run: Run, saved: tuple[str, str], tmp_path: Path, folder: str
) -> None:
    ended = run("fetch", saved[0], "--to", str(tmp_path / folder))
    assert (ended.code, f"is in {tmp_path / folder}/trial-0-step-1\n" in ended.out) == (0, True)


def test_a_connection_that_breaks_loses_nothing(
    run: Run, saved: tuple[str, str], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0)
    with breaking_proxy(url, 100_000, 50, 150_000, 700) as (proxy, requests):
        assert run("fetch", saved[1], "--to", str(tmp_path), "--url", proxy).code == 0
    assert (tmp_path / "trial-0-step-1/weights").read_bytes() == CONTENT
    assert [b"range: bytes=" in request for request in requests] == [False, True, True, True, True]


@pytest.fixture
def part(run: Run, saved: tuple[str, str], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What an interrupted download to `models` has left."""
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(download, "MAX_FAILURES", 1)
    with breaking_proxy(url, 100_000, 0) as (proxy, _):
        ended = run("fetch", saved[1], "--to", str(tmp_path / "models"), "--url", proxy)
        assert (ended.code, "a call to the service at" in ended.err) == (1, True)
    (part,) = (tmp_path / "models").iterdir()
    return part


def test_an_interrupted_download_goes_on_in_the_next_command(
    run: Run, saved: tuple[str, str], part: Path, url: str, tmp_path: Path
) -> None:
    received = part.stat().st_size
    assert 90_000 < received < 100_000
    with breaking_proxy(url) as (proxy, requests):
        assert run("fetch", saved[1], "--to", str(tmp_path / "models"), "--url", proxy).code == 0
    assert (tmp_path / "models/trial-0-step-1/weights").read_bytes() == CONTENT
    assert b"range: bytes=%d-" % received in requests[0]


def test_a_complete_download_that_was_not_unpacked_is_not_fetched_again(
    run: Run, saved: tuple[str, str], part: Path, url: str, tmp_path: Path
) -> None:
    part.write_bytes(httpx.get(f"{url}/v1/trials/{saved[1]}/checkpoints/1/archive").content)
    with breaking_proxy(url) as (proxy, requests):
        assert run("fetch", saved[1], "--to", str(tmp_path / "models"), "--url", proxy).code == 0
    assert [b"range: bytes=" in request for request in requests] == [True]
    assert (tmp_path / "models/trial-0-step-1/weights").read_bytes() == CONTENT
    assert not part.exists()


def test_part_of_another_archive_is_not_used(run: Run, saved: tuple[str, str], part: Path, tmp_path: Path) -> None:
    other = part.rename(part.with_name(f"{part.name.rsplit('.', 2)[0]}.{'0' * 64}.tar"))
    other.write_bytes(b"of files that have changed since")
    assert run("fetch", saved[1], "--to", str(tmp_path / "models")).code == 0
    assert (tmp_path / "models/trial-0-step-1/weights").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["trial-0-step-1"]


def tar_of(*names: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
    return content.getvalue()


ETAG = {"ETag": f'"{"0" * 64}"'}


def test_the_event_files_of_an_experiment_with_the_longest_name_are_fetched(run: Run, tmp_path: Path) -> None:
    name = "n" * 100
    with answering(Answer(200, tar_of("tensorboard/events"), ETAG)) as (address, _):
        ended = run("fetch", name, "--tensorboard", "--to", str(tmp_path), "--url", address)
    assert (ended.code, ended.err) == (0, "")
    assert [path.name for path in tmp_path.rglob("*")] == [f"{name}-tensorboard", "events"]


ARCHIVE = "/v1/experiments/mine/tensorboard/archive"
FETCH = ["fetch", "mine", "--tensorboard"]


def test_a_second_command_for_the_same_directory_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpack_late(archive: Path, target: Path) -> None:
        monkeypatch.setattr(download, "_unpack", unpack)
        with Client(address) as client, pytest.raises(CannotFetch, match=r"another command fetches .*mine-tensorboard"):
            fetch_archive(client, ARCHIVE, target)
        unpack(archive, target)

    unpack = download._unpack
    monkeypatch.setattr(download, "_unpack", unpack_late)
    with answering(Answer(200, tar_of("tensorboard/events"), ETAG)) as (address, _):
        ended = run(*FETCH, "--to", str(tmp_path), "--url", address)
    assert (ended.code, ended.err) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["mine-tensorboard"]


def test_the_lock_of_a_command_that_was_killed_is_free(run: Run, tmp_path: Path) -> None:
    stem = download._stem(ARCHIVE, tmp_path / "mine-tensorboard")
    stem.with_name(f"{stem.name}.lock").touch()
    with answering(Answer(200, tar_of("tensorboard/events"), ETAG)) as (address, _):
        assert run(*FETCH, "--to", str(tmp_path), "--url", address).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["mine-tensorboard"]


@pytest.mark.parametrize(
    "given",
    [
        Answer(206, tar_of("tensorboard/events")[10:], ETAG | {"Content-Range": "bytes 10-10239/10240"}),
        Answer(206, tar_of("tensorboard/events"), ETAG),
        problem(416, type="urn:paceline:error:range-not-satisfiable", size=3),
    ],
    ids=["another range", "no range", "longer than the archive"],
)
def test_a_part_that_does_not_fit_is_begun_again(run: Run, tmp_path: Path, given: Answer) -> None:
    stem = download._stem(ARCHIVE, tmp_path / "mine-tensorboard")
    stem.with_name(f"{stem.name}.{'0' * 64}.tar").write_bytes(b"start")
    with answering(given, Answer(200, tar_of("tensorboard/events"), ETAG)) as (address, requests):
        ended = run(*FETCH, "--to", str(tmp_path), "--url", address)
    assert (ended.code, ended.err) == (0, "")
    assert [request.headers["Range"] for request in requests] == ["bytes=5-", None]
    assert [path.name for path in tmp_path.rglob("*")] == ["mine-tensorboard", "events"]


def test_an_archive_that_never_comes_further_is_given_up(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy cuts it off, and answers what is asked for next with another part, so that it is begun again."""
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0)
    archive = tar_of("tensorboard/events")
    wrong = Answer(206, archive, ETAG | {"Content-Range": "bytes 1-9/10"})
    cut = [Answer(200, archive[: 1000 + turn % 2], ETAG | {"Content-Length": "9999"}) for turn in range(40)]
    with answering(*(each for one in cut for each in (one, wrong)), problem(404)) as (address, requests):
        assert run(*FETCH, "--to", str(tmp_path), "--url", address).code == 1
    assert len(requests) < 40


def test_a_name_that_no_directory_can_have_is_said(run: Run, tmp_path: Path) -> None:
    ended = run("fetch", "n" * 300, "--tensorboard", "--to", str(tmp_path))
    assert (ended.code, "File name too long" in ended.err) == (1, True)


@pytest.mark.parametrize("headers", [{}, {"ETag": f"W/{ETAG['ETag']}"}, {"ETag": "0"}, {"ETag": '"../0"'}])
def test_an_archive_without_the_services_etag_is_refused(
    run: Run, tmp_path: Path, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0)
    with answering(Answer(200, tar_of("tensorboard/events"), headers)) as (address, _):
        ended = run("fetch", "mine", "--tensorboard", "--to", str(tmp_path), "--url", address)
    assert f"{address}/v1/experiments/mine/tensorboard/archive answered 200 with the ETag " in ended.err
    assert "does a proxy in between change answers?" in ended.err
    assert (ended.code, list(tmp_path.iterdir())) == (1, [])


@pytest.mark.parametrize("foreign", [Answer(200, b"<html>"), Answer(404, b"<html>"), Answer(429), Answer(520)])
def test_an_answer_of_another_program_does_not_end_a_download(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, foreign: Answer
) -> None:
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0)
    archive = tar_of("tensorboard/events")
    begun = Answer(200, archive[:1000], ETAG | {"Content-Length": str(len(archive))})
    rest = Answer(206, archive[1000:], ETAG | {"Content-Range": f"bytes 1000-{len(archive) - 1}/{len(archive)}"})
    with answering(foreign, begun, foreign, rest) as (address, requests):
        ended = run(*FETCH, "--to", str(tmp_path), "--url", address)
    assert (ended.code, ended.err, len(requests)) == (0, "", 4)
    assert [path.name for path in tmp_path.rglob("*")] == ["mine-tensorboard", "events"]


def test_a_part_that_was_not_asked_for_is_refused(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0)
    with answering(Answer(206, tar_of("tensorboard/events"), ETAG)) as (address, _):
        ended = run("fetch", "mine", "--tensorboard", "--to", str(tmp_path), "--url", address)
    assert "tensorboard/archive answered 206" in ended.err
    assert (ended.code, list(tmp_path.iterdir())) == (1, [])


@pytest.mark.parametrize("names", [[], ["one", "other"]])
def test_an_archive_of_anything_but_one_directory_is_not_unpacked(run: Run, tmp_path: Path, names: list[str]) -> None:
    with answering(Answer(200, tar_of(*names), ETAG)) as (address, _):
        ended = run("fetch", "mine", "--tensorboard", "--to", str(tmp_path), "--url", address)
    assert f"cannot be unpacked, and is left as it is: it has {len(names)} members at its top" in ended.err
    assert ended.code == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_the_event_files_of_an_experiment_are_fetched_by_its_name(
    run: Run, saved: tuple[str, str], url: str, tmp_path: Path
) -> None:
    name, trial = saved
    assert "no event files of TensorBoard" in run("fetch", trial, "--tensorboard").err
    storage = httpx.get(f"{url}/v1/agents/any/attempts").json()["storage"]
    experiment = httpx.get(f"{url}/v1/experiments/{name}").json()["id"]
    runs = Path(storage, f"{name}-{experiment}", "tensorboard", "trial-0-attempt-1", "runs")
    runs.mkdir(parents=True)
    (runs / "events.out.tfevents.1").write_bytes(CONTENT)
    for source in (name, trial):
        assert run("fetch", source, "--tensorboard", "--to", str(tmp_path)).code == 0
        fetched = tmp_path / f"{source}-tensorboard" / "trial-0-attempt-1" / "runs" / "events.out.tfevents.1"
        assert fetched.read_bytes() == CONTENT


def test_what_cannot_be_fetched_is_said(run: Run, project: Path, url: str, saved: tuple[str, str]) -> None:
    assert "no checkpoint at step 7" in run("fetch", saved[1], "--step", "7").err
    assert "t-0" in run("fetch", "t-0").err
    without = finish_one(url, str(external(run, project)["name"]), {"outcome": "completed"})
    assert "has no checkpoint" in run("fetch", without).err
    metrics = [{"metric": "loss", "direction": "minimize"}, {"metric": "size", "direction": "minimize"}]
    name = str(external(run, project, objectives=metrics)["name"])
    asked = httpx.post(f"{url}/v1/experiments/{name}/ask").json()
    lease = {"Authorization": f"Bearer {asked['lease']['token']}"}
    reports = {"reports": [{"sequence": 0, "metrics": {"loss": 0.5, "size": 1}}]}
    httpx.post(f"{url}/v1/trials/{asked['trial']}/reports", json=reports, headers=lease).raise_for_status()
    httpx.post(f"{url}/v1/trials/{asked['trial']}/finish", json={"outcome": "completed"}, headers=lease)
    refused = run("fetch", name)
    assert (refused.code, "Pareto front" in refused.err) == (2, True)
