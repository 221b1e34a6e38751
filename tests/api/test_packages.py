"""Packages: kept by digest, looked into before anything runs."""

import io
import stat
import zipfile

from service.settings import Settings
from tests.conftest import Api, changed, running


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


def test_one_file_of_python_is_a_package(service: Api) -> None:
    package = service.post("/v1/packages", 201, content=b"x = 1\n", params={"filename": "train.py"})
    assert package["files"] == ["train.py"]


def test_paths_that_lead_out_are_refused(service: Api) -> None:
    for name in ("../evil.py", "/etc/evil.py", "a/../../evil.py", "..\\evil.py", "C:/evil.py"):
        problem = service.post("/v1/packages", 422, content=zipped((name, b"")))
        assert "below its root" in problem["detail"]


def test_links_and_packages_without_code_are_refused(service: Api) -> None:
    link = zipfile.ZipInfo("train.py")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(link, "/etc/passwd")
    assert "symbolic link" in service.post("/v1/packages", 422, content=buffer.getvalue())["detail"]
    assert "no .py" in service.post("/v1/packages", 422, content=zipped(("a.txt", b"")))["detail"]
    assert "neither" in service.post("/v1/packages", 422, content=b"not a zip")["detail"]


def test_a_package_that_is_too_large_is_refused_and_says_what_to_do(settings: Settings) -> None:
    with running(changed(settings, max_package_bytes=1000)) as service:
        problem = service.post("/v1/packages", 413, content=b"x" * 1001)
        assert problem["type"] == "too-large"
        assert "shared storage" in problem["detail"]
        bomb = io.BytesIO()
        with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("train.py", b" " * 100_000)
        assert len(bomb.getvalue()) < 1000
        assert "unpacked" in service.post("/v1/packages", 413, content=bomb.getvalue())["detail"]
        sent = service.http.post("/v1/experiments", files={"spec": b"{}", "code": ("a.py", b"x" * 6_000_000)})
        assert sent.status_code == 413
        assert service.get("/healthz") == {"status": "alive"}


def test_what_is_not_there_is_not_found(service: Api) -> None:
    service.get("/v1/packages/sha256:" + "0" * 64, 404)
    service.get("/v1/packages/sha256:..%2f..%2fpaceline.db", 404)
