"""What killed processes leave is removed once it is old, and nothing else."""

import os
import tempfile
import time
from pathlib import Path

import pytest

from service.background.charting import FOLDER_PREFIX
from service.background.leftover_removal import MAX_AGE_SECONDS, LeftoverRemoval
from service.settings import Settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    settings = Settings.from_env({"PACELINE_DATA_DIR": str(tmp_path / "data")})
    settings.prepare_directories()
    return settings


def left_in(settings: Settings) -> dict[str, Path]:
    """What a killed service leaves, and what belongs to a living one or to the user."""
    temporary, packages = Path(tempfile.gettempdir()), settings.packages_dir
    charts = temporary / f"{FOLDER_PREFIX}abc"
    charts.mkdir()
    (charts / "curves.png").write_bytes(b"png")
    files = {
        "part": packages / f"{'0' * 64}.1a2b3c4d.part",
        "package": packages / ("0" * 64),
        "probe": settings.logs_dir / ".writable-17",
        "other": temporary / "paceline-picture.png",
    }
    for file in files.values():
        file.write_bytes(b"some")
    link = temporary / f"{FOLDER_PREFIX}link"
    link.symlink_to(packages)
    return {**files, "charts": charts, "link": link}


def test_what_a_killed_service_leaves_is_removed_when_it_is_old(settings: Settings) -> None:
    left = left_in(settings)
    assert LeftoverRemoval(settings).run_once() == 0
    later = time.time() + MAX_AGE_SECONDS + 60
    assert LeftoverRemoval(settings, clock=lambda: later).run_once() == 4
    assert {name for name, path in left.items() if os.path.lexists(path)} == {"package", "other"}
    assert LeftoverRemoval(settings, clock=lambda: later).run_once() == 0
