"""Commands that create, list and remove access tokens, and the token that other commands use."""

import re
from pathlib import Path

import pytest

from service.cli.terminal import console
from tests.unit.cli.conftest import Run, open_to_others, serving

pytestmark = pytest.mark.slow


def test_tokens_are_created_listed_and_removed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_DATA_DIR", str(tmp_path))
    elsewhere = tmp_path / "elsewhere.db"
    elsewhere.touch(0o644)
    monkeypatch.setenv("PACELINE_DATABASE_URL", f"sqlite:///{elsewhere}")
    assert run("token", "create", "alice", "--role", "read").out.startswith("pl_")
    assert open_to_others(tmp_path) == set()
    assert run("token", "create", "alice").code == 2
    assert "never    never" in re.sub(r" +", "    ", run("token", "ls").out)
    assert run("token", "rotate", "alice", "--overlap", "1h", "--lifetime", "90d").out.startswith("pl_")
    assert re.search(r"alice +read +\d{4}-[-\d]+ \d\d:\d\d +\d{4}-[-\d]+ \d\d:\d\d +never", run("token", "ls").out)
    assert "no token 'bob'" in run("token", "rotate", "bob").err
    assert "90d, 12h, 30m or 45s" in run("token", "create", "bob", "--lifetime", "soon").err
    assert "must be longer than 0" in run("token", "create", "bob", "--lifetime", "0d").err
    assert "must not be empty" in run("token", "create", " ").err
    assert run("token", "rm", "alice").code == 0
    assert "alice" not in run("token", "ls").out
    assert "no token 'alice'" in run("token", "rm", "alice").err


@pytest.mark.parametrize("name", ["[/a]", "[red]bob[/red]", "x" * 100])
def test_names_are_listed_as_they_were_given(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PACELINE_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(console.out, "width", 60)
    assert run("token", "create", name).code == 0
    [_, row] = run("token", "ls").out.splitlines()
    assert row.startswith(f"{name}  write")


@pytest.mark.parametrize(
    ("name", "mistake"),
    [("x" * 300, "must have at most 100 characters, not 300"), ("a\udcff", "must be text in UTF-8")],
)
def test_a_name_that_not_every_database_can_store_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mistake: str
) -> None:
    monkeypatch.setenv("PACELINE_DATA_DIR", str(tmp_path))
    ended = run("token", "create", name)
    assert (ended.code, ended.out) == (2, "")
    assert mistake in ended.err


def test_the_token_comes_from_the_environment(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_DATA_DIR", str(tmp_path))
    token = run("token", "create", "alice", "--role", "read").out.strip()
    with serving(tmp_path, PACELINE_REQUIRE_TOKENS="1") as url:
        assert "`paceline token create`" in run("ls", "--url", url).err
        monkeypatch.setenv("PACELINE_TOKEN", token)
        assert run("ls", "--url", url).code == 0
