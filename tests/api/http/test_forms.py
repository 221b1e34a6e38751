"""Forms with `spec` and `code`: what is not exactly that is refused with the reason, as early as it is known."""

import asyncio
import contextlib
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.http.bodies.forms import read_form
from service.errors import ServiceError
from tests.conftest import Api, a_spec

TRAIN = b"def train_fn(config): pass\n"
BOUNDARY = "xyz"
HEADERS = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
TORCH = {"kind": "torch", "entrypoint": "train:train_fn"}


def part(name: str, content: bytes, filename: str | None = None) -> bytes:
    file = "" if filename is None else f'; filename="{filename}"'
    return f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode() + content + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def a_spec_part(filename: str | None = "spec.yaml") -> bytes:
    return part("spec", json.dumps(a_spec(trainer=TORCH)).encode(), filename)


CODE = part("code", TRAIN, "train.py")
REFUSED = {
    "two specs": (form(a_spec_part(), a_spec_part(), CODE), 422, "spec: is sent twice"),
    "a spec as a file and as text": (form(a_spec_part(), a_spec_part(None), CODE), 422, "spec: is sent twice"),
    "one file twice": (form(a_spec_part(), CODE, CODE), 422, "train.py"),
    "two files of one name": (
        form(a_spec_part(), CODE, part("code", b"x", "a/util.py"), part("code", b"y", "b/util.py")), 422, "util.py"),
    "a name in another case": (form(a_spec_part(), CODE, part("code", b"x", "Train.py")), 422, "Train.py"),
    "code as text": (form(a_spec_part(), part("code", TRAIN)), 422, "code=@train.py"),
    "code as text beside a file": (form(a_spec_part(), CODE, part("code", TRAIN)), 422, "code=@train.py"),
    "a file without a name": (form(a_spec_part(), part("code", TRAIN, "")), 422, "file name"),
    "a file with a folder's name": (form(a_spec_part(), CODE, part("code", TRAIN, "..")), 422, "file name"),
    "an unknown part": (form(a_spec_part(), CODE, part("spce", b"x")), 422, "known here: spec, code"),
    "a part without a name": (form(a_spec_part(), part("", b"x")), 422, "known here: spec, code"),
    "no spec": (form(CODE), 422, "spec: is required"),
    "no parts": (form(), 422, "spec: is required"),
    "a part that is not named": (f"--{BOUNDARY}\r\n\r\nx\r\n--{BOUNDARY}--\r\n".encode(), 400, "name"),
    "no end": (form(a_spec_part(), CODE)[:-20], 400, "end"),
    "no form": (b"x" * 100, 400, "multipart"),
    "no bytes": (b"", 400, "multipart"),
    "thousands of parts": (form(a_spec_part(), *(part("code", b"", f"{n}.py") for n in range(20_000))), 413, "parts"),
    "a long header": (form(part("spec", b"", "a" * 100_000)), 400, "multipart"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "status", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_a_form_that_is_not_a_spec_with_its_code_is_refused(
    service: Api, body: bytes, status: int, reason: str
) -> None:
    answer = service.http.post("/v1/experiments", content=body, headers=HEADERS)
    assert answer.status_code == status, answer.text
    assert reason in answer.json()["detail"]
    assert list(service.app.state.context.settings.packages_dir.iterdir()) == []
    assert service.get("/v1/experiments")["items"] == []


@pytest.mark.parametrize("boundary", ["", "; boundary=", "; boundary=" + "x" * 5000, "; boundary=é", "; boundary"])
def test_a_form_without_its_boundary_is_refused(service: Api, boundary: str) -> None:
    headers = {b"Content-Type": f"multipart/form-data{boundary}".encode()}
    assert service.http.post("/v1/experiments", content=form(CODE), headers=headers).status_code == 400


@pytest.mark.parametrize("filename", [None, "spec.yaml"])
def test_a_large_spec_in_a_form_is_refused_before_it_has_arrived(service: Api, filename: str | None) -> None:
    sent = 0

    def body() -> Iterator[bytes]:
        nonlocal sent
        yield part("spec", b"a: ", filename)[:-2]
        for _ in range(40):
            sent += 1
            yield b"x" * 1_000_000

    tracemalloc.start()
    try:
        answer = service.http.post("/v1/experiments", content=body(), headers=HEADERS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (answer.status_code, answer.json()["max_bytes"]) == (413, 5_000_000)
    assert peak < 60_000_000


def test_a_form_may_have_a_spec_as_text_and_several_files(service: Api) -> None:
    body = form(
        a_spec_part(None), CODE, part("code", b"x = 1", "C:/work/model.py"), part("code", b"{}", "données.json")
    )
    created = service.post("/v1/experiments", 201, content=body, headers=HEADERS)
    package = created["spec"]["trainer"]["package"]
    assert service.http.get(f"/v1/packages/{package}").content.startswith(b"PK")


@pytest.mark.slow
def test_a_spec_of_four_megabytes_in_a_form_is_read(service: Api) -> None:
    text = json.dumps(a_spec(config={"x": "x" * 4_000_000})).encode()
    service.post("/v1/experiments", 201, content=form(part("spec", text)), headers=HEADERS)


FORM_PARTS = st.sampled_from([
    f"--{BOUNDARY}".encode(), b"--", b"\r\n", b"\n", b"Content-Disposition: form-data", b"; name=",
    b'"spec"', b'"code"', b'; filename="a.py"', b"; filename*=UTF-8''%ff", b'"', b":", b" ", b"\0", b"\xff", b"x",
    b"a: 1", b"Content-Length: 9",
]) | st.binary(max_size=5)  # fmt: skip


@given(st.lists(FORM_PARTS, max_size=25), st.integers(1, 40), st.binary(max_size=8) | st.just(BOUNDARY.encode()))
def test_any_bytes_are_a_form_or_are_refused(pieces: list[bytes], size: int, boundary: bytes) -> None:
    body = b"".join(pieces)

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(body), size):
            yield body[start : start + size]

    with contextlib.suppress(ServiceError):
        asyncio.run(read_form(f"multipart/form-data; boundary={boundary.decode('latin-1')}", chunks()))
