"""Commands that create, list and remove access tokens, and the token that other commands use."""

import re
from pathlib import Path

import pytest

from service.cli.terminal import console
from tests.unit.cli.conftest import Run, open_to_others, serving
from tests.unit.cli.stored_revisions import revision_in, set_revision

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


ON_PRESENT_TOKENS = (["ls"], ["rm", "alice"], ["rotate", "alice"])


@pytest.mark.parametrize("command", ON_PRESENT_TOKENS, ids=" ".join)
def test_a_database_is_created_for_the_first_token_only(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("PACELINE_DATA_DIR", str(tmp_path / "data"))
    ended = run("token", *command)
    assert (ended.code, ended.out) == (2, "")
    assert f"there is no database {tmp_path / 'data' / 'paceline.db'}" in ended.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ON_PRESENT_TOKENS, ids=" ".join)
def test_only_an_older_schema_stops_the_commands_of_present_tokens(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("PACELINE_DATA_DIR", str(tmp_path))
    run("token", "create", "alice")
    set_revision(tmp_path / "paceline.db", "9999")
    assert run("token", *command).code == 0
    set_revision(tmp_path / "paceline.db", "0016")
    ended = run("token", *command)
    assert (ended.code, ended.out) == (2, "")
    assert "has the schema of another version (revision 0016)" in ended.err
    assert revision_in(tmp_path / "paceline.db") == "0016"


def test_the_token_comes_from_the_environment(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_DATA_DIR", str(tmp_path))
    token = run("token", "create", "alice", "--role", "read").out.strip()
    with serving(tmp_path, PACELINE_REQUIRE_TOKENS="1") as url:
        assert "`paceline token create`" in run("ls", "--url", url).err
        monkeypatch.setenv("PACELINE_TOKEN", token)
        assert run("ls", "--url", url).code == 0
