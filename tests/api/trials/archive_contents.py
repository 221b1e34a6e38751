"""The files in an archive of a checkpoint."""

import io
import tarfile


def contents(tar: bytes) -> dict[str, bytes | None]:
    """The files by name; None for what is not a file."""
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        read = {one.name: opened.extractfile(one) if one.isfile() else None for one in opened}
        return {name: file.read() if file else None for name, file in read.items()}
