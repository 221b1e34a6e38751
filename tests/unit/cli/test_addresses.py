"""The service's address, as a user may misspell it: a sentence instead of a traceback."""

import pytest

from tests.unit.cli.conftest import Run

EXAMPLE = "is no address such as http://127.0.0.1:8000"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:80a",
        "http://127.0.0.1:99999",
        "http://[::1",
        "127.0.0.1:8000",
        "ftp://127.0.0.1",
        "http://",
        "http://127.0.0.1:8000,http://backup:port",
    ],
)
@pytest.mark.parametrize("command", ["ls", "doctor", "agent"])
def test_what_is_no_address_is_a_usage_error(run: Run, command: str, url: str) -> None:
    ended = run(command, "--url", url)
    assert ended.code == 2
    assert f"'{url.rpartition(',')[2]}' {EXAMPLE}" in ended.err


def test_a_password_that_is_not_encoded_is_not_shown(run: Run) -> None:
    ended = run("ls", "--url", "http://me:a-pass/word@paceline:8000")
    assert ended.code == 2
    assert "a-pass" not in ended.err
    assert "percent-encoded" in ended.err
