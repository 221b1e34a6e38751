"""The service's address, as a user may misspell it: a sentence instead of a traceback."""

import json
import sys
from pathlib import Path

import pytest

from service.cli.client.client import CONNECTION_VARIABLES
from service.cli.doctor.check import CheckState
from service.cli.doctor.settings_checks import check_settings
from tests.unit.cli.conftest import Run

EXAMPLE = "is not an address such as http://127.0.0.1:8000"


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
        f"http://{'a' * 64}",
        "http://..",
        "http://xn--a",
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


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CONNECTION_VARIABLES:
        for variable in (name, name.lower()):
            monkeypatch.delenv(variable, raising=False)


CALLED = "https://paceline.invalid"


@pytest.mark.usefixtures("no_proxy")
@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:1", "Using SOCKS proxy"),
        ("HTTPS_PROXY", "ftp://me:hidden@127.0.0.1:1", "Unknown scheme for proxy"),
        ("HTTPS_PROXY", "http://[::1", "Invalid port"),
        ("SSL_CERT_FILE", "/absent.pem", "No such file"),
    ],
)
def test_a_proxy_or_certificates_that_cannot_be_used_are_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, why: str
) -> None:
    if "socks5" in value:
        monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv(variable, value)
    ended = run("ls", "--url", CALLED)
    assert ended.err.startswith(f"error: {CALLED} cannot be called: ")
    assert why in ended.err
    assert variable in ended.err
    assert "hidden" not in ended.err
    assert ended.code == 2
    service, *_ = json.loads(run("doctor", "--json", "--url", CALLED).out)
    assert (service["subject"], service["state"]) == ("service", "failed")
    assert why in service["found"]


@pytest.mark.usefixtures("no_proxy")
def test_a_proxy_whose_name_cannot_be_looked_up_reaches_no_service(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://{'a' * 64}")
    ended = run("ls", "--url", CALLED)
    assert ended.err.startswith(f"error: a call to the service at {CALLED} failed: ")
    assert ended.code == 1


@pytest.mark.usefixtures("no_proxy")
@pytest.mark.parametrize(("variable", "value"), [("HTTP_PROXY", "ftp://127.0.0.1:1"), ("SSL_CERT_FILE", "/absent.pem")])
def test_doctor_checks_mlflow_with_a_proxy_or_certificates_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    settings = {"PACELINE_DATA_DIR": str(tmp_path), "PACELINE_MLFLOW_URI": "http://mlflow.invalid"}
    [found] = [one for one in check_settings(settings) if one.subject == "MLflow"]
    assert (found.state, "does not answer" in found.found) == (CheckState.WARNING, True)
