"""Standard output that is closed or full."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PACELINE = [sys.executable, "-m", "service.cli"]


def paceline(*arguments: str, redirection: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it in a shell, with its standard output redirected."""
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", *PACELINE, *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("redirection", "reason"), [(">&-", "it is closed"), (">/dev/full", "No space left on device")]
)
def test_an_output_that_cannot_be_written_is_named(redirection: str, reason: str, unbuffered: str) -> None:
    for option in ("--version", "--help"):
        ended = paceline(option, redirection=redirection, PYTHONUNBUFFERED=unbuffered)
        assert ended.stderr == f"error: standard output cannot be written: {reason}\n"
        assert ended.returncode == 1
