"""Standard output that is closed, or full, or whose encoding lacks characters."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run, external, finish_one

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


def test_characters_that_the_encoding_lacks_are_shown_as_their_codes(run: Run, project: Path, url: str) -> None:
    name = str(external(run, project)["name"])
    for outcome in ("completed", "failed"):
        finish_one(url, name, {"outcome": outcome})
    ended = paceline("watch", name, PYTHONIOENCODING="ascii")
    assert (ended.stderr, ended.returncode) == ("", 0)
    assert r"1 completed \xb7 1 failed" in ended.stdout


def test_a_terminal_and_errors_have_a_width_whatever_columns_says() -> None:
    program = (
        "from service.cli.terminal.console import err, out; assert out.width and err.width, (out.width, err.width)"
    )
    master, terminal = os.openpty()
    environment = {**os.environ, "COLUMNS": "0"}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, stdout=terminal, check=False)
    os.close(terminal)
    os.close(master)
    assert ended.returncode == 0


def test_a_console_without_an_output_or_a_width_can_be_made() -> None:
    program = "from service.cli.terminal.console import out, PIPED_WIDTH; assert out.width == PIPED_WIDTH, out.width"
    environment = {**os.environ, "COLUMNS": "0"}
    command = [sys.executable, "-c", program]
    for shell in ('"$@" | cat; exit ${PIPESTATUS[0]}', '"$@" >&-'):
        ended = subprocess.run(["bash", "-c", shell, "-", *command], env=environment, check=False)
        assert ended.returncode == 0
