"""What several tests of workers use."""

from pathlib import Path

import pytest

from tests.trainer.worker.package_trials import Trials


@pytest.fixture
def trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trials:
    package, root = tmp_path / "package", tmp_path / "runs"
    package.mkdir()
    root.mkdir()
    return Trials(package, root, monkeypatch)
