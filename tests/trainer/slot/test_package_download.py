"""The package's download, which waits for an unreachable service as reports do."""

from pathlib import Path

import pytest

from tests.trainer.fake_service import FakeService
from trainer.client.errors import CallRefused, ServiceUnreachable
from trainer.client.http import ServiceClient, download_package


def test_a_download_is_repeated_until_the_service_is_back(tmp_path: Path) -> None:
    with FakeService(str(tmp_path)).serving() as service:
        package = service.add_package("x = 1")
        service.away = True
        asked = []

        def is_cancelled() -> bool:
            asked.append(1)
            service.away = len(asked) < 3
            return False

        found = download_package(ServiceClient(service.url, "a-lease"), package, is_cancelled)
    assert found.content == b"x = 1"
    assert len(asked) == 3


def test_an_ended_attempt_stops_waiting_for_its_package(tmp_path: Path) -> None:
    with FakeService(str(tmp_path)).serving() as service:
        service.away = True
        with pytest.raises(ServiceUnreachable):
            download_package(ServiceClient(service.url, "a-lease"), "sha256:00", lambda: True)


def test_a_missing_package_is_reported_immediately(tmp_path: Path) -> None:
    with FakeService(str(tmp_path)).serving() as service, pytest.raises(CallRefused):
        download_package(ServiceClient(service.url, "a-lease"), "sha256:00", lambda: False)
