"""`paceline serve` as a process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from service.stack.ports import free_port
from tests.api.deployment.service_processes import answers
from tests.timeouts import PATIENCE_SECONDS, wait_until

JSON = {"PACELINE_LOG_FORMAT": "json", "PACELINE_LOG_LEVEL": "debug"}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "service.cli", *arguments]


@contextmanager
def serving(data_dir: Path, output: Path, *, tokens: bool = True) -> Iterator[httpx.Client]:
    port = free_port()
    env = os.environ | JSON | {"PACELINE_DATA_DIR": str(data_dir), "PACELINE_REQUIRE_TOKENS": str(int(tokens))}
    with output.open("wb") as file:
        process = subprocess.Popen(command("serve", "--port", str(port)), env=env, stdout=file, stderr=file)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS) as client:
        try:
            wait_until(lambda: answers(client) or process.poll() is not None)
            assert process.poll() is None, output.read_text()
            yield client
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)
