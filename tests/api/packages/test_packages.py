"""Packages: stored by digest, checked before anything runs."""

import errno
import hashlib
import io
import json
import os
import stat
import zipfile
from functools import partial
from typing import Any

import httpx
import pytest

from service.settings import Settings
from service.store.tables import PackageRow
from tests.concurrent_calls import during_insert
from tests.conftest import Api, a_spec, changed, running

TRAIN = b"def train_fn(config): pass\n"
DIRECTORY = b"PK\1\2"
"""The signature of an entry in a zip's directory."""


def zipped(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, body in members:
            archive.writestr(zipfile.ZipInfo(name), body)
    return buffer.getvalue()


def test_the_same_bytes_give_the_same_id(service: Api) -> None:
    body = zipped(("train.py", b"x = 1\n"), ("model/net.py", b"y = 2\n"))
    first, again = (service.post("/v1/packages", 201, content=body) for _ in range(2))
    assert first == again
    assert first["files"] == ["model/net.py", "train.py"]
    assert service.http.get(f"/v1/packages/{first['id']}").content == body


@pytest.mark.databases("postgresql")
@pytest.mark.parametrize("in_a_form", [False, True])
def test_of_two_first_uploads_at_once_both_succeed(service: Api, *, in_a_form: bool) -> None:
    """The second one begins when the first one has stored the package and not committed."""
    context, digest = service.app.state.context, hashlib.sha256(TRAIN).hexdigest()
    facts = {"size": len(TRAIN), "files": ["train.py"], "created_at": context.clock()}
    first = PackageRow(id=f"sha256:{digest}", filename="train.py", **facts)

    def send() -> httpx.Response:
        if in_a_form:
            spec = a_spec(trainer={"entrypoint": "train:train_fn"})
            return service.http.post(
                "/v1/experiments", files={"spec": json.dumps(spec).encode(), "code": ("train.py", TRAIN)}
            )
        return service.http.post("/v1/packages?filename=train.py", content=TRAIN)

    answer = during_insert(context.database, first, send)
    assert answer.status_code == 201, answer.text
    assert service.http.get(f"/v1/packages/{first.id}").content == TRAIN


def test_one_file_of_python_is_a_package(service: Api) -> None:
    package = service.post("/v1/packages", 201, content=b"x = 1\n", params={"filename": "train.py"})
    assert package["files"] == ["train.py"]


def test_one_script_that_is_sent_with_a_specification_is_a_package(service: Api) -> None:
    spec = a_spec(trainer={"kind": "command", "command": ["sh", "train.sh"]})
    script = ("train.sh", b"echo loss=1\n")
    created = service.http.post("/v1/experiments", files={"spec": json.dumps(spec).encode(), "code": script})
    assert created.status_code == 201, created.text
    package = service.http.get(f"/v1/packages/{created.json()['spec']['trainer']['package']}").content
    assert zipfile.ZipFile(io.BytesIO(package)).read("train.sh") == b"echo loss=1\n"


def test_paths_outside_the_package_are_refused(service: Api) -> None:
    for name in ("../evil.py", "/etc/evil.py", "a/../../evil.py", "..\\evil.py", "C:/evil.py"):
        problem = service.post("/v1/packages", 422, content=zipped((name, b"")))
        assert "below its root" in problem["detail"]


def test_links_are_refused(service: Api) -> None:
    link = zipfile.ZipInfo("train.py")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(link, "/etc/passwd")
    assert "symbolic link" in service.post("/v1/packages", 422, content=buffer.getvalue())["detail"]
    assert "neither" in service.post("/v1/packages", 422, content=b"not a zip")["detail"]


def test_a_package_that_is_too_large_is_refused_and_says_what_to_do(settings: Settings) -> None:
    with running(changed(settings, max_package_bytes=1000)) as service:
        problem = service.post("/v1/packages", 413, content=b"x" * 1001)
        assert problem["type"] == "urn:paceline:error:too-large"
        assert "shared storage" in problem["detail"]
        bomb = io.BytesIO()
        with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("train.py", b" " * 100_000)
        assert len(bomb.getvalue()) < 1000
        assert "unpacks to" in service.post("/v1/packages", 413, content=bomb.getvalue())["detail"]
        sent = service.http.post("/v1/experiments", files={"spec": b"{}", "code": ("a.py", b"x" * 6_000_000)})
        assert sent.status_code == 413
        assert service.get("/healthz") == {"status": "alive"}


def test_an_unknown_package_is_not_found(service: Api) -> None:
    service.get("/v1/packages/sha256:" + "0" * 64, 404)
    service.get("/v1/packages/sha256:..%2f..%2fpaceline.db", 404)


def patched(archive: bytes, *changes: tuple[int, int]) -> bytes:
    """Sets each (offset, byte); negative offsets count from the zip's directory, less one."""
    body, directory = bytearray(archive), archive.index(DIRECTORY)
    for offset, byte in changes:
        body[offset if offset >= 0 else directory - offset] = byte
    return bytes(body)


BROKEN = {
    "a directory that is none": b"x" * 50 + b"PK\5\6" + bytes([0, 0, 0, 0, 1, 0, 1, 0, 40, 0, 0, 0, 5, 0, 0, 0, 0, 0]),
    "a member without a name": zipped((".", b""), ("train.py", TRAIN)),
    "an encrypted member": patched(zipped(("train.py", TRAIN)), (6, 1), (-8, 1)),
    "an unknown compression": patched(zipped(("train.py", TRAIN)), (8, 99), (-10, 99)),
    "a damaged member": zipped(("train.py", TRAIN)).replace(b"pass", b"pasS"),
    "a name that is no text": patched(zipped(("X.py", b""), ("train.py", TRAIN)).replace(b"X.py", b"\xff.py"), (-9, 8)),
}


def test_a_zip_without_files_is_refused(service: Api) -> None:
    refused = service.post("/v1/packages", 422, content=zipped())
    assert refused["errors"] == [{"path": "package", "message": "has no files"}]


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN.keys())
def test_zips_that_workers_could_not_unpack_are_refused(service: Api, body: bytes) -> None:
    assert service.post("/v1/packages", 422, content=body)["type"] == "urn:paceline:error:invalid"


@pytest.mark.parametrize("name", ["训练.py", 'a"b.py', "a\r\nX-Evil: 1\r\n\r\nb.py", ".py", "a b.py"])
def test_names_that_do_not_fit_a_header_are_refused(service: Api, name: str) -> None:
    assert "train.py" in service.post("/v1/packages", 422, content=TRAIN, params={"filename": name})["detail"]


def test_a_zip_may_have_any_name(service: Api) -> None:
    body = zipped(("train.py", TRAIN))
    package = service.post("/v1/packages", 201, content=body, params={"filename": '我 "1".zip'})
    got = service.http.get(f"/v1/packages/{package['id']}")
    assert got.headers["content-disposition"] == 'attachment; filename="package.zip"'


def test_only_an_entrypoint_requires_a_python_file(service: Api) -> None:
    package = service.post("/v1/packages", 201, content=zipped(("train.sh", b"echo loss=1\n")))["id"]
    torch = {"kind": "torch", "entrypoint": "train:train_fn", "package": package}
    refused = service.post("/v1/experiments", 422, json=a_spec(trainer=torch))
    assert refused["errors"] == [
        {"path": "trainer.entrypoint", "message": "the package has no module 'train'; it has: no .py file"}
    ]
    metrics = {"stdout": [r"loss=(?P<loss>\S+)"]}
    command = {"kind": "command", "command": ["sh", "train.sh"], "metrics": metrics, "package": package}
    service.post("/v1/experiments", 201, json=a_spec(trainer=command))


@pytest.mark.parametrize("source", [
    b"a = " + b"-" * 20_000 + b"1\n", b"if a: pass\n" + b"elif b: pass\n" * 1500,
    b"a = " + b"+".join([b"1"] * 6000) + b"\n", b"x = 1\n" * 200_000,
], ids=["minus", "elif", "sum", "long"])  # fmt: skip
def test_code_that_is_hard_to_parse_is_left_to_the_worker(service: Api, source: bytes) -> None:
    sent: Any = service.post("/v1/packages", 201, content=source + TRAIN, params={"filename": "train.py"})
    trainer = {"kind": "torch", "entrypoint": "train:train_fn", "package": sent["id"]}
    service.post("/v1/experiments", 201, json=a_spec(trainer=trainer))


def test_a_full_disk_refuses_a_package_and_leaves_no_part_of_it(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        refused = service.post("/v1/packages?filename=train.py", 507, content=b"def train_fn(): ...\n")
    assert "No space left on device" in refused["detail"]
    assert list(service.app.state.context.settings.packages_dir.iterdir()) == []
    service.post("/v1/packages?filename=train.py", 201, content=b"def train_fn(): ...\n")


@pytest.mark.parametrize("name", ["ray", "torch"])
def test_a_module_that_a_worker_could_not_import_in_place_of_a_library_is_refused(service: Api, name: str) -> None:
    package = service.post("/v1/packages", 201, content=zipped((f"{name}.py", TRAIN)))["id"]
    trainer = {"entrypoint": f"{name}:train_fn", "package": package}
    (mistake,) = service.post("/v1/experiments", 422, json=a_spec(trainer=trainer))["errors"]
    assert mistake["path"] == "trainer.entrypoint"
    assert f"rename the module {name!r}" in mistake["message"]


def test_what_datasets_name_is_looked_for_in_the_package(service: Api) -> None:
    body = zipped(("train.py", TRAIN), ("data.py", b"def make(config, more): pass\n"), ("rows.csv", b"x\n1\n"))
    package = service.post("/v1/packages", 201, content=body)["id"]

    def mistakes(datasets: Any) -> Any:
        trainer = {"entrypoint": "train:train_fn", "package": package, "datasets": datasets}
        return service.post("/v1/experiments", 422, json=a_spec(trainer=trainer))["errors"]

    (missing,) = mistakes({"train": {"read": "csv", "paths": ["rows.csv", "row.csv"]}})
    assert missing["path"] == "trainer.datasets.train.paths.1"
    assert "it has: data.py, rows.csv, train.py" in missing["message"]
    (no_function,) = mistakes({"entrypoint": "data:mak"})
    assert no_function == {
        "path": "trainer.datasets.entrypoint",
        "message": "data.py has no function 'mak'; it has: make",
    }
    (two_arguments,) = mistakes({"entrypoint": "data:make"})
    assert two_arguments["path"] == "trainer.datasets.entrypoint"
    assert "must take one argument, the configuration" in two_arguments["message"]


@pytest.mark.parametrize(
    ("code", "flaw"),
    [
        (b"class train_fn:\n    def __init__(self, config): pass\n", "is a class, and must be a function"),
        (b"def train_fn(config):\n    for x in (1, 2):\n        yield x\n", "is a generator, because it has a yield"),
        (b"def train_fn(config):\n    def batches():\n        yield 1\n    list(batches())\n", None),
        (b"async def train_fn(config): pass\n", "is an async function, and must be a plain one"),
        (b"@run\nasync def train_fn(config): pass\n", None),
    ],
    ids=["class", "generator", "inner generator", "async", "decorated async"],
)
def test_what_ray_train_would_not_call_as_a_function_is_refused(service: Api, code: bytes, flaw: str | None) -> None:
    package = service.post("/v1/packages", 201, content=code, params={"filename": "train.py"})["id"]
    spec = a_spec(trainer={"entrypoint": "train:train_fn", "package": package})
    answer = service.post("/v1/experiments", 201 if flaw is None else 422, json=spec)
    assert flaw is None or flaw in answer["errors"][0]["message"]


def test_a_requirements_file_is_mentioned_when_it_is_not_used(service: Api) -> None:
    package = service.post("/v1/packages", 201, content=zipped(("train.py", TRAIN), ("requirements.txt", b"emoji\n")))
    trainer = {"entrypoint": "train:train_fn", "package": package["id"]}
    created = service.post("/v1/experiments", 201, json=a_spec(name="unused", trainer=trainer))
    assert [one["path"] for one in created["warnings"]] == ["trainer.runtime_env"]
    used = trainer | {"runtime_env": {"pip": "from_package"}}
    assert service.post("/v1/experiments", 201, json=a_spec(name="used", trainer=used))["warnings"] == []
    wrong = service.post("/v1/packages", 201, content=zipped(("train.py", TRAIN), ("requirements.txt", b"-e .\n")))
    refused = service.post("/v1/experiments", 422, json=a_spec(trainer=used | {"package": wrong["id"]}))
    assert refused["errors"][0]["path"] == "trainer.runtime_env.pip"


def test_the_same_file_under_another_name_is_another_package(service: Api) -> None:
    first = service.post("/v1/packages?filename=train.py", 201, content=TRAIN)
    second, again = (service.post("/v1/packages?filename=main.py", 201, content=TRAIN) for _ in range(2))
    assert second["id"] == again["id"] != first["id"]
    assert (first["files"], second["files"]) == (["train.py"], ["main.py"])
    with zipfile.ZipFile(io.BytesIO(service.http.get(f"/v1/packages/{second['id']}").content)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {"main.py": TRAIN}
    spec = json.dumps(a_spec(trainer={"entrypoint": "main:train_fn"}))
    files = {"spec": ("spec.json", spec), "code": ("main.py", TRAIN)}
    assert service.post("/v1/experiments", 201, files=files)["spec"]["trainer"]["package"] == second["id"]


@pytest.mark.parametrize(
    ("signature", "is_warned_of"),
    [("train_fn()", True), ("train_fn(config=None)", False), ("train_fn(*args)", False), ("train_fn(config)", False)],
)
def test_a_function_that_cannot_get_the_params_is_warned_of(service: Api, signature: str, is_warned_of: bool) -> None:
    code = f"def {signature}: pass\n".encode()
    package = service.post("/v1/packages", 201, content=code, params={"filename": "train.py"})["id"]
    spec = a_spec(trainer={"entrypoint": "train:train_fn", "package": package})
    warnings = service.post("/v1/experiments", 201, json=spec)["warnings"]
    message = "train.py: train_fn takes no argument, so all trials run alike; let it take the configuration: "
    expected = {"path": "trainer.entrypoint", "message": f"{message}def train_fn(config)"}
    assert (expected in warnings) is is_warned_of


@pytest.mark.parametrize(
    ("comment_bytes", "is_warned_of"),
    [(10, True), (23_000, True), (1_100_000, False)],
    ids=["small", "checked in a worker process", "too long to check"],
)
def test_a_submission_and_its_repeat_get_the_same_warnings(
    service: Api, comment_bytes: int, is_warned_of: bool
) -> None:
    code = b'"""' + b"c" * comment_bytes + b'"""\ndef train_fn(): pass\n'
    files = {
        "spec": ("spec.json", json.dumps(a_spec(trainer={"entrypoint": "train:train_fn"}))),
        "code": ("code.zip", zipped(("train.py", code), ("requirements.txt", b"emoji\n"))),
    }
    send = partial(service.post, "/v1/experiments", 201, files=files, headers={"Idempotency-Key": "once"})
    first, again = send(), send()
    assert first["id"] == again["id"]
    assert first["warnings"] == again["warnings"]
    of_function = ["trainer.entrypoint"] if is_warned_of else []
    assert [one["path"] for one in first["warnings"]] == ["trainer.runtime_env", *of_function]


def test_a_reused_key_is_answered_before_mistakes_in_the_code(service: Api) -> None:
    headers = {"Idempotency-Key": "once"}
    service.post("/v1/experiments", 201, json=a_spec(), headers=headers)
    package = service.post("/v1/packages", 201, content=b"def other(config): pass\n", params={"filename": "train.py"})
    spec = a_spec(trainer={"entrypoint": "train:train_fn", "package": package["id"]})
    service.post("/v1/experiments", 409, json=spec, headers=headers)
    service.post("/v1/experiments", 422, json=spec)


def test_a_repeat_returns_the_experiment_although_its_package_is_gone(service: Api) -> None:
    package = service.post("/v1/packages", 201, content=TRAIN, params={"filename": "train.py"})
    spec = a_spec(trainer={"entrypoint": "train:train_fn", "package": package["id"]})
    send = partial(service.post, "/v1/experiments", json=spec, headers={"Idempotency-Key": "once"})
    first = send(201)
    (service.app.state.context.settings.packages_dir / package["id"].removeprefix("sha256:")).unlink()
    assert send(201)["id"] == first["id"]
    service.post("/v1/experiments", 422, json=spec | {"name": "another"})
