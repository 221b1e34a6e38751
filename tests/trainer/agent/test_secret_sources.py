"""Which secrets an agent gives to trials, and what it says of those that it does not have or does not give."""

import os
from pathlib import Path
from typing import Any

import pytest

from trainer.agent.secret_sources import MAX_BYTES, SecretNotAvailable, SecretSources


def wanting(**secrets: Any) -> dict[str, Any]:
    return {"trainer": {"secrets": secrets}}


def env(variable: str) -> dict[str, Any]:
    return {"from_agent_env": variable, "from_agent_file": None}


def file(path: Path | str) -> dict[str, Any]:
    return {"from_agent_env": None, "from_agent_file": str(path)}


def sources(settings: dict[str, str]) -> SecretSources:
    return SecretSources.from_env("gpu-1", settings)


def refusal(source: dict[str, Any], settings: dict[str, str]) -> str:
    with pytest.raises(SecretNotAvailable) as refused:
        sources(settings).resolve(wanting(W=source))
    assert "trainer.secrets.W" in str(refused.value)
    return str(refused.value)


def test_secrets_come_from_the_environment_and_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_KEY", "one")
    (tmp_path / "two").write_text("two\n")
    (tmp_path / "link").symlink_to(tmp_path / "two")
    found = sources({"PACELINE_SECRET_FILES": f"/nowhere, {tmp_path}"}).resolve(
        wanting(A=env("TEAM_KEY"), B=file(tmp_path / "two"), C=file(tmp_path / "link"))
    )
    assert found == {"A": "one", "B": "two", "C": "two"}
    assert sources({}).resolve({"trainer": {}}) == {}


def test_a_missing_secret_is_named_with_the_agent(tmp_path: Path) -> None:
    assert "agent 'gpu-1' has no environment variable NOT_THERE, or an empty one" in refusal(env("NOT_THERE"), {})
    missing = refusal(file(tmp_path / "none"), {"PACELINE_SECRET_FILES": str(tmp_path)})
    assert f"agent 'gpu-1' cannot read the file {tmp_path}/none" in missing
    assert "a source that agent 'gpu-1' does not know" in refusal({"from_vault": "x"}, {})


@pytest.mark.parametrize(
    "variable", ["PACELINE_TOKEN", "PACELINE_DATABASE_URL", "RAY_AUTH_TOKEN_PATH", "paceline_token"]
)
def test_no_trial_gets_the_agents_own_access(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "the value")
    for patterns in (None, "*", variable):
        settings = {} if patterns is None else {"PACELINE_SECRET_VARIABLES": patterns}
        message = refusal(env(variable), settings)
        assert "does not give its environment variable" in message
        assert "the value" not in message


def test_an_agent_restricts_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_KEY", "one")
    monkeypatch.setenv("OTHER", "two")
    settings = {"PACELINE_SECRET_VARIABLES": "WANDB_API_KEY, TEAM_*"}
    assert sources(settings).resolve(wanting(W=env("TEAM_KEY"))) == {"W": "one"}
    assert "PACELINE_SECRET_VARIABLES" in refusal(env("OTHER"), settings)
    assert "PACELINE_SECRET_VARIABLES" in refusal(env("TEAM_KEY"), {"PACELINE_SECRET_VARIABLES": ""})


def test_files_are_given_from_the_agents_folders_only(tmp_path: Path) -> None:
    allowed, outside = tmp_path / "allowed", tmp_path / "outside"
    allowed.mkdir()
    outside.write_text("not for trials")
    (allowed / "link").symlink_to(outside)
    for path in (outside, allowed / "link", allowed / ".." / "outside", "/proc/self/environ", "/etc/passwd"):
        for settings in ({}, {"PACELINE_SECRET_FILES": str(allowed)}):
            assert "does not give the file" in refusal(file(path), settings)
    assert "does not give the file" in refusal(file("/proc/self/environ"), {"PACELINE_SECRET_FILES": "/"})


def test_what_cannot_be_a_variable_is_refused(tmp_path: Path) -> None:
    settings = {"PACELINE_SECRET_FILES": str(tmp_path)}
    for content in (b"", b"\n", b"a\0b", b"x" * (MAX_BYTES + 1)):
        (tmp_path / "odd").write_bytes(content)
        assert "cannot be an environment variable" in refusal(file(tmp_path / "odd"), settings)
    (tmp_path / "odd").write_bytes(
        b"x" + "é".encode() * MAX_BYTES
    )  # its first MAX_BYTES + 1 bytes end within a character
    assert f"more than {MAX_BYTES} bytes" in refusal(file(tmp_path / "odd"), settings)
    (tmp_path / "odd").write_bytes(b"\xff\xfe")
    assert "not UTF-8 text" in refusal(file(tmp_path / "odd"), settings)
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for a writer
    for path in (tmp_path, tmp_path / "pipe"):
        assert "cannot read" in refusal(file(path), settings)


def test_a_variable_that_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", os.fsdecode(b"abc\xff"))
    assert "not UTF-8 text" in refusal(env("WANDB_API_KEY"), {})
