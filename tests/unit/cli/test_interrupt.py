"""Ctrl-C in the first half second of a command, while it imports modules."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.timeouts import PATIENCE_SECONDS

INTERRUPTED_AT_AN_IMPORT = """
import os, signal, sys
from service.cli.main import main

class Interrupt:
    def find_spec(self, name, *_):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

module = sys.argv.pop(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
sys.meta_path.insert(0, Interrupt())
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "command"),
    [("service.cli.all_commands", "ls"), ("typer", "ls"), ("service.cli.serve_alone", "serve")],
)
def test_ctrl_c_has_one_exit_code_and_no_traceback(module: str, command: str, tmp_path: Path) -> None:
    code = [sys.executable, "-c", INTERRUPTED_AT_AN_IMPORT, module, command]
    ended = subprocess.run(code, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert (ended.returncode, ended.stderr) == (130, "")
