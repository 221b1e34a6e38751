"""Several service processes on one database."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from service.stack.ports import free_port
from tests.timeouts import PATIENCE_SECONDS, wait_until


@contextmanager
def served(
    database_url: str, data_dir: Path, port: int | None = None
) -> Iterator[tuple[httpx.Client, subprocess.Popen[bytes]]]:
    port = port or free_port()
    env = os.environ | {"PACELINE_DATABASE_URL": database_url, "PACELINE_DATA_DIR": str(data_dir)}
    command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port)]
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS) as client:
        try:
            wait_until(lambda: answers(client) or process.poll() is not None)
            assert process.poll() is None
            yield client, process
        finally:
            process.kill()
            process.wait()


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False
