"""Calls to a service behind TLS whose certificate an own authority has issued. Needs no Ray."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tls import Authority, authority
from tests.trainer.fake_service import FakeService
from trainer.agent.settings import BadSetting, trusted_certificates
from trainer.client.addresses import ServiceAddresses
from trainer.client.errors import ForeignAnswer
from trainer.client.http import ServiceClient

CALL = "/v1/agents/one/attempts"


@pytest.fixture
def own(tmp_path: Path) -> Authority:
    return authority(tmp_path / "own")


@pytest.fixture
def url(tmp_path: Path, own: Authority) -> Iterator[str]:
    service = FakeService(str(tmp_path))
    own.serve(service.server)
    with service.serving():
        yield service.url.replace("http:", "https:")


def test_a_service_is_trusted_by_the_certificate_that_the_agent_is_given(url: str, own: Authority) -> None:
    certificates = trusted_certificates({"SSL_CERT_FILE": str(own.file)}, [url])
    own.file.unlink()  # nodes of the cluster do not have the file
    assert ServiceClient(ServiceAddresses(url, certificates), "token").get(CALL)["attempts"] == []


@pytest.mark.parametrize("is_given_another", [True, False])
def test_a_service_that_is_not_trusted_is_named_with_what_to_set(
    url: str, tmp_path: Path, is_given_another: bool
) -> None:
    certificates = authority(tmp_path / "other").file.read_text() if is_given_another else None
    with pytest.raises(ForeignAnswer) as raised:
        ServiceClient(ServiceAddresses(url, certificates), "token").get(CALL)
    assert f"the certificate at {url} cannot be verified (unable to get local issuer certificate)" in str(raised.value)
    assert "set SSL_CERT_FILE" in str(raised.value)


def test_a_service_without_tls_at_an_https_address_is_named(tmp_path: Path) -> None:
    with FakeService(str(tmp_path)).serving() as service:
        url = service.url.replace("http:", "https:")
        with pytest.raises(ForeignAnswer, match=f"{url} cannot be called with TLS: "):
            ServiceClient(url, "token").get(CALL)


@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_a_file_without_certificates_is_a_bad_setting(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "certificates.pem"
    if content is not None:
        file.write_text(content)
    env = {"SSL_CERT_FILE": str(file)}
    with pytest.raises(BadSetting, match=r"SSL_CERT_FILE is '.*certificates.pem', in which there are no certificates"):
        trusted_certificates(env, ["http://127.0.0.1:8000", " https://paceline.example"])
    assert trusted_certificates(env, ["http://127.0.0.1:8000"]) is None
    assert trusted_certificates({}, ["https://paceline.example"]) is None
