"""Ctrl-C in the first half second of a command, while it imports modules."""

import subprocess
import sys

import pytest

INTERRUPTED_AT_AN_IMPORT = """
import os, signal, sys
from service.cli.main import main

class Interrupt:
    def find_spec(self, name, *_):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

module = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupt())
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "command"),
    [("service.cli.all_commands", "ls"), ("typer", "ls"), ("service.cli.serve_alone", "serve")],
)
def test_ctrl_c_has_one_exit_code_and_no_traceback(module: str, command: str) -> None:
    code = [sys.executable, "-c", INTERRUPTED_AT_AN_IMPORT, module, command]
    ended = subprocess.run(code, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "")
