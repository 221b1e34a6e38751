"""Agents as they say who they are."""

from typing import Any

TORCH = {"kind": "torch", "entrypoint": "a_module:train_fn"}


def an_instance(pid: int) -> dict[str, Any]:
    return {"place": "a-host 1 2", "pid": pid, "started": 7}
