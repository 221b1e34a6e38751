"""The stack's components, with other programs in place of theirs."""

import sys
from pathlib import Path

import pytest

from service.stack import components
from service.stack.options import Options
from service.stack.orphan_cleanup import PREFIX, CleanupRecord
from service.stack.process_tags import new_tag
from service.stack.supervisor import Component


def stack(data_dir: Path) -> dict[str, Component]:
    """The components by name; Ray's directory does not exist."""
    options = Options(data_dir, port=0, mlflow_port=0).resolved()
    record = CleanupRecord(new_tag(), str(data_dir / f"{PREFIX}ray"))
    return {one.name: one for stage in components.stages_of(options, record) for one in stage}


def test_rays_directory_is_created_again_when_it_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(components, "module_command", lambda *_: [sys.executable, "-c", ""])
    ray = stack(tmp_path)["ray"]
    ray.start()
    ray.child.kill()
    assert (tmp_path / f"{PREFIX}ray").stat().st_mode & 0o777 == 0o700
