"""The README's curl tour, run as written: blocks marked ```bash whose first line is `# tour`, in one shell."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import REPOSITORY, Stack

TOUR = re.compile(r"^```bash\n# tour\b[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
DEFAULT_URL = "http://127.0.0.1:8000"


@pytest.mark.slow
@pytest.mark.ray
def test_the_readmes_tour_works_as_written(stack: Stack, tmp_path: Path) -> None:
    blocks = TOUR.findall((REPOSITORY / "README.md").read_text())
    assert blocks, "README.md has no ```bash block whose first line is `# tour`"
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
    tools = Path(sys.executable).parent
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(blocks).replace(DEFAULT_URL, stack.url)],
        cwd=tmp_path,
        env=os.environ | {"PACELINE_URL": stack.url, "PATH": f"{tools}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    assert "event: experiment.completed" in ended.stdout, "the search ran to its end"
    assert "space.lr.low: must be > 0 when log is true" in ended.stdout, "each mistake is reported with its path"
