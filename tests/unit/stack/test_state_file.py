"""The file that says where a stack runs."""

import os
from pathlib import Path

import pytest

from service.stack.state_file import read_state, state_file, write_state
from service.stack.up_options import Options


@pytest.mark.parametrize(
    "text", ["", '{"pid": 1', "[]", "{}", '{"pid": "1", "url": "http://x"}', f'{{"pid": {10**30}}}']
)
def test_a_damaged_state_counts_as_none(tmp_path: Path, text: str) -> None:
    state_file(tmp_path).write_text(text)
    assert read_state(tmp_path) is None


def test_a_state_that_is_no_text_counts_as_none(tmp_path: Path) -> None:
    state_file(tmp_path).write_bytes(b"\xff\x00")
    assert read_state(tmp_path) is None


def test_a_state_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it may be empty after a power failure."""
    names = list[bool]()
    monkeypatch.setattr(os, "fsync", lambda _: names.append(state_file(tmp_path).exists()))
    write_state(Options(tmp_path))
    assert names == [False]
    assert read_state(tmp_path) == {
        "pid": os.getpid(),
        "url": "http://127.0.0.1:8000",
        "mlflow_url": "http://127.0.0.1:5000",
    }
