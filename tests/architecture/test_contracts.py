"""The import contracts of .importlinter hold."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_imports_keep_to_the_contracts() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    root = Path(__file__).parents[2]
    done = subprocess.run([lint, "--no-cache"], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
