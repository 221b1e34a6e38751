"""`up.json` in the data directory: the running stack's process id and addresses."""

import json
import os
from pathlib import Path
from typing import Any

from service.stack.up_options import Options


def state_file(data_dir: Path) -> Path:
    return data_dir / "up.json"


def write_state(options: Options) -> None:
    """Write `{pid, url, mlflow_url}`. The stack calls this when it is ready, and removes the file when it stops."""
    file = state_file(options.data_dir)
    state = {"pid": os.getpid(), "url": options.url, "mlflow_url": options.mlflow_url}
    written = file.with_suffix(".new")
    with written.open("w") as output:
        output.write(json.dumps(state))
        output.flush()
        os.fsync(output.fileno())
    written.replace(file)


def read_state(data_dir: Path) -> dict[str, Any] | None:
    """Return the state of the stack that is ready in this data directory; None when there is none, or it is damaged."""
    try:
        state: dict[str, Any] = json.loads(state_file(data_dir).read_text())
        os.kill(state["pid"], 0)
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return None
    return state if "url" in state else None
