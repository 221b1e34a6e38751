"""Nodes of Ray clusters in processes of their own, which start what `paceline up` starts and no more."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from service.stack.components import NODE_ENVIRONMENT

LEAN_NODE = ("--include-log-monitor", "false", "--disable-usage-stats")
LEAN_HEAD = ("--include-dashboard", "false", "--no-monitor")
SMALL_STORE = ("--object-store-memory", "100000000")


def start_head(port: int, directory: Path, **settings: Any) -> "subprocess.Popen[bytes]":
    """Start a cluster whose files are in this directory; see `start_node` for the rest."""
    return start_node("--head", "--port", str(port), "--temp-dir", str(directory), *LEAN_HEAD, **settings)


def start_node(
    *options: str,
    cpus: int,
    resources: Mapping[str, float] | None = None,
    labels: str = "",
    python: str = sys.executable,
    env: Mapping[str, str] = os.environ,
    log: IO[str] | int = subprocess.DEVNULL,
) -> "subprocess.Popen[bytes]":
    """Start `ray start --block`; `labels` such as `zone=a`.

    Kill its whole family, which is a session, to end the node as a power failure does.
    """
    command = [python, "-m", "ray.scripts.scripts", "start", "--block", *options, "--num-cpus", str(cpus)]
    command += ["--labels", labels, "--resources", json.dumps(resources or {}), *LEAN_NODE, *SMALL_STORE]
    return subprocess.Popen(command, env={**env, **NODE_ENVIRONMENT}, stdout=log, stderr=log, start_new_session=True)
