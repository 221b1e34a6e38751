"""`paceline backup` and `restore`: their messages and exit codes."""

from pathlib import Path

import pytest

from service.settings import LEASE_KEY_FILE
from service.stack.ports import free_port
from tests.unit.cli.conftest import Run


@pytest.mark.parametrize("command", ["backup", "restore"])
@pytest.mark.parametrize("address", ["me:sekret@127.0.0.1:{port}/x", "me@127.0.0.1:{port}/x?password=sekret"])
def test_no_password_is_in_the_message_about_a_database_that_is_away(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, address: str
) -> None:
    url = f"postgresql+psycopg://{address.format(port=free_port())}"
    monkeypatch.setenv("PACELINE_DATABASE_URL", url)
    data = tmp_path / command
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / LEASE_KEY_FILE).touch()
    ended = run(command, str(tmp_path / "a.tar.gz"), "--data-dir", str(data))
    assert ended.code == 1
    assert "connection failed" in ended.err
    assert "sekret" not in ended.err
