"""The code that is sent with an experiment."""

import io
import os
import zipfile
from pathlib import Path
from typing import IO, Any

import pytest

from service.cli import code_archive
from service.cli.code_archive import (
    CannotPack,
    folder_with_file,
    folder_with_module,
    largest_files,
    linked_folders,
    packed,
)


def pack(path: Path) -> tuple[str, bytes]:
    with packed(path) as code:
        return code.filename, code.content.read()


def files_in(content: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.namelist()


def write(folder: Path, *paths: str) -> None:
    for path in paths:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {path}\n")


def test_one_file_is_sent_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "train.sh")
    assert pack(tmp_path / "train.py") == ("train.py", b"# train.py\n")
    assert pack(tmp_path / "train.sh") == ("train.sh", b"# train.sh\n")


def test_a_folder_is_sent_without_caches_and_hidden_files(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "nets/cnn.py", "data/labels.csv", "experiment.yaml")
    write(
        tmp_path, ".git/config", ".env", "__pycache__/train.pyc", "nets/old.pyc", "my-env/pyvenv.cfg", "my-env/lib/x.py"
    )
    filename, content = pack(tmp_path)
    assert filename == "package.zip"
    assert files_in(content) == ["data/labels.csv", "experiment.yaml", "nets/cnn.py", "train.py"]


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path, "b.py", "a.py")
    first = pack(tmp_path)
    os.utime(tmp_path / "a.py", (1, 1))
    (tmp_path / "b.py").chmod(0o700)
    assert pack(tmp_path) == first


def test_what_cannot_be_read_is_named_and_pipes_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x = 1")
    os.mkfifo(tmp_path / "pipe")
    assert files_in(pack(tmp_path)[1]) == ["train.py"]
    (tmp_path / "latest").symlink_to("gone")
    with pytest.raises(CannotPack, match=r"latest' cannot be packed: .*No such file"):
        pack(tmp_path)


def test_links_to_devices_and_pipes_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "code", "train.py")
    (tmp_path / "code" / "again.py").symlink_to("train.py")
    (tmp_path / "code" / "null").symlink_to("/dev/null")
    assert files_in(pack(tmp_path / "code")[1]) == ["again.py", "train.py"]
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "code" / "pipe").symlink_to(tmp_path / "pipe")
    assert files_in(pack(tmp_path / "code")[1]) == ["again.py", "train.py"]


def test_a_loop_of_links_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(CannotPack, match="loop' cannot be packed: Too many levels of symbolic links"):
        pack(tmp_path)


def test_the_largest_files_are_those_that_would_be_sent(tmp_path: Path) -> None:
    write(tmp_path, "train.py")
    (tmp_path / "images.npy").write_bytes(bytes(2_000_000))
    write(tmp_path, ".git/objects")
    assert largest_files(tmp_path) == "images.npy (2.0 MB), train.py (0.0 MB)"


def test_a_folder_with_data_is_refused_before_it_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "train.py")
    with (tmp_path / "images.npy").open("wb") as sparse:
        sparse.truncate(3_000_000_000)
    monkeypatch.setattr(code_archive, "_zip_into", pytest.fail)
    with pytest.raises(CannotPack, match=r"has 3\.0 GB, too much for code; .*: images\.npy \(3000\.0 MB\), train\.py"):
        pack(tmp_path)


def test_a_file_that_grows_meanwhile_is_sent_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def grow_and_open(archive: zipfile.ZipFile, *arguments: Any) -> IO[bytes]:
        with (tmp_path / "train.log").open("a") as log:
            log.write("more")
        return open_entry(archive, *arguments)

    write(tmp_path, "train.log")
    open_entry = zipfile.ZipFile.open
    monkeypatch.setattr(zipfile.ZipFile, "open", grow_and_open)
    content = pack(tmp_path)[1]
    monkeypatch.undo()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.read("train.log") == b"# train.log\n"


def test_a_file_that_has_grown_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def grow(folder: Path) -> None:
        with (folder / "train.log").open("wb") as sparse:
            sparse.truncate(3_000_000_000)

    monkeypatch.setattr(code_archive, "_check_size", grow)
    with pytest.raises(CannotPack, match=r"train\.log has grown to 3\.0 GB meanwhile"):
        pack(tmp_path)


def test_links_to_folders_are_left_out_and_named(tmp_path: Path) -> None:
    write(tmp_path / "data", "labels.csv")
    write(tmp_path / "code", "train.py", "nets/cnn.py", ".venv/pyvenv.cfg")
    (tmp_path / "code" / "data").symlink_to(tmp_path / "data")
    (tmp_path / "code" / "nets" / "again").symlink_to(tmp_path / "code")
    (tmp_path / "code" / "labels.csv").symlink_to(tmp_path / "data" / "labels.csv")
    (tmp_path / "code" / ".venv" / "lib64").symlink_to(tmp_path / "data")
    assert linked_folders(tmp_path / "code") == ["data", "nets/again"]
    assert files_in(pack(tmp_path / "code")[1]) == ["labels.csv", "nets/cnn.py", "train.py"]


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotPack, match="no file or folder"):
        pack(tmp_path / "absent.py")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["python", "train.py"], True),
        (["sh", "-c", "cd nets && python cnn.py"], True),
        (["./nets/cnn.py"], True),
        (["python", "-m", "train"], True),
        (["sh", "-c", "torchrun --module nets.cnn"], True),
        (["installed", "--config=nets/cnn.py"], True),
        (["python", "lr=3/train.py"], True),
        (["installed", "-k", "train"], False),
        (["python", "-m", "installed", "--out", "x" * 5000], False),
        (["/usr/bin/train.py", "\0", "", "."], False),
    ],
)
def test_the_specs_folder_is_the_code_when_a_command_names_something_in_it(
    tmp_path: Path, arguments: list[str], *, found: bool
) -> None:
    write(tmp_path, "train.py", "nets/cnn.py", "lr=3/train.py")
    assert folder_with_file(tmp_path / "experiment.yaml", arguments) == (tmp_path if found else None)


@pytest.mark.parametrize(
    ("entrypoint", "found"),
    [("train:f", True), ("nets.cnn:f", True), ("installed.module:f", False), ("", False)],
)
def test_the_specs_folder_is_the_code_when_it_has_the_entrypoint(
    tmp_path: Path, entrypoint: str, *, found: bool
) -> None:
    write(tmp_path, "train.py", "nets/cnn.py")
    assert folder_with_module(tmp_path / "experiment.yaml", entrypoint) == (tmp_path if found else None)
