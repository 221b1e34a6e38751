"""The checkpoints: for each rank random bytes, and a file with their digest and step."""

import hashlib
import json
import os
import time
from pathlib import Path

PAYLOAD_BYTES = 100_000


def save(directory: Path, rank: int, world_size: int, step: int) -> None:
    """Write the rank's part; slowly, so that it can be killed while saving. Each file is replaced as a whole."""
    content = step.to_bytes(4, "big") + os.urandom(PAYLOAD_BYTES)
    _replace(directory / f"part-{rank}", content)
    time.sleep(0.05)
    digest = {"sha256": hashlib.sha256(content).hexdigest(), "step": step, "world_size": world_size}
    _replace(directory / f"sum-{rank}.json", json.dumps(digest).encode())


def restored(directory: Path, rank: int) -> tuple[int, bool]:
    """Return the step, and whether the part is what was saved. Raises what a broken checkpoint raises."""
    first = json.loads((directory / "sum-0.json").read_text())
    part = rank % first["world_size"]  # an elastic group may have grown since
    digest = json.loads((directory / f"sum-{part}.json").read_text())
    content = (directory / f"part-{part}").read_bytes()
    return int(digest["step"]), hashlib.sha256(content).hexdigest() == digest["sha256"]


def _replace(file: Path, content: bytes) -> None:
    new = file.with_name(f"{file.name}.new")
    new.write_bytes(content)
    new.replace(file)
