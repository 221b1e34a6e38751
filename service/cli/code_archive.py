"""The code that goes with an experiment: one file as it is, or a folder as a zip whose bytes depend on nothing else."""

import io
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 50_000_000
LEFT_OUT = frozenset({"__pycache__", "node_modules", "paceline-data", "mlruns", "build", "dist"})
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold: the same files give the same bytes, and so the same package."""


class CannotPack(Exception):
    """Why the code cannot be sent, and what to do."""


@dataclass(frozen=True)
class Code:
    filename: str
    content: bytes


def pack(path: Path) -> Code:
    """Raises CannotPack for what is not there, not Python, or over MAX_BYTES."""
    if path.is_dir():
        return Code("package.zip", _zipped(path))
    if not path.is_file():
        raise CannotPack(f"there is no file or folder {path}")
    if path.suffix not in {".py", ".zip"}:
        raise CannotPack(f"{path} is neither a .py, nor a .zip, nor a folder")
    return Code(path.name, path.read_bytes())


def beside(spec_file: Path, entrypoint: str) -> Path | None:
    """Return the spec's folder when the entrypoint's module is in it; None when the module must be elsewhere."""
    folder = spec_file.parent
    top = entrypoint.partition(":")[0].partition(".")[0]
    found = top and ((folder / f"{top}.py").is_file() or (folder / top).is_dir())
    return folder if found else None


def _zipped(folder: Path) -> bytes:
    files = sorted(_files(folder))
    _check_size(folder, files)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            entry = zipfile.ZipInfo(file.relative_to(folder).as_posix(), EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _files(folder: Path) -> Iterator[Path]:
    for directory, folders, names in os.walk(folder):
        here = Path(directory)
        folders[:] = [name for name in folders if not _is_left_out(here / name)]
        yield from (here / name for name in names if not name.startswith(".") and not name.endswith(".pyc"))


def _is_left_out(folder: Path) -> bool:
    """Hidden folders, caches, builds, and virtual environments by whatever name."""
    name = folder.name
    return name.startswith(".") or name in LEFT_OUT or name.endswith(".egg-info") or (folder / "pyvenv.cfg").exists()


def _check_size(folder: Path, files: list[Path]) -> None:
    sizes = {file: file.stat().st_size for file in files}
    total = sum(sizes.values())
    if total > MAX_BYTES:
        largest = sorted(files, key=lambda file: -sizes[file])[:3]
        names = ", ".join(f"{file.relative_to(folder)} ({_megabytes(sizes[file])})" for file in largest)
        raise CannotPack(
            f"the code in {folder} has {_megabytes(total)}, more than {_megabytes(MAX_BYTES)}; the largest: {names}. "
            f"Move data elsewhere, or name the file or folder to send: --code PATH"
        )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
