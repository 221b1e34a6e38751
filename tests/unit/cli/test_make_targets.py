"""`make demo` and `make up` pass their variables on to the command line."""

import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize("target", ["demo", "up"])
def test_a_data_directory_may_have_any_name(tmp_path: Path, target: str) -> None:
    program = tmp_path / "paceline"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o700)
    name = f"{tmp_path}/my data; 'of' \"mine\""
    command = ["make", "--no-print-directory", "--old-file=.venv/.installed", target, f"BIN={tmp_path}"]
    said = subprocess.run([*command, f"DATA_DIR={name}"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == [target, "--data-dir", name]
