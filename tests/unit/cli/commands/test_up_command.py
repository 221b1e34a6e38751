"""`paceline up` reads its options and checks its access token before it starts anything."""

from pathlib import Path

import pytest

from service.stack import up
from service.stack.up_options import Options
from tests.unit.cli.conftest import Run

started: list[Options] = []


@pytest.fixture(autouse=True)
def _no_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    started.clear()
    monkeypatch.setattr(up, "run", lambda options, **_: started.append(options))


def test_whitespace_around_the_token_does_not_count(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_TOKEN", " pl_token\n")
    assert run("up").code == 0
    assert [options.token for options in started] == ["pl_token"]


@pytest.mark.parametrize("command", ["up", "demo"])
def test_a_token_that_no_header_can_have_is_a_usage_error(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("PACELINE_TOKEN", "pl_tökén")
    ended = run(command)
    assert ended.code == 2
    assert "PACELINE_TOKEN has a space" in ended.err
    assert not started


def test_a_data_directory_below_the_home_directory(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("PACELINE_DATA_DIR", "~/tuning")
    assert run("up").code == 0
    assert [options.data_dir for options in started] == [Path("/home/me/tuning")]
