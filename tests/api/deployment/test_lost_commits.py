"""The connection to the database is lost while a transaction commits, so that the service cannot know its outcome."""

import pytest

from tests.api.deployment.test_silent_database import proxy, service, settings
from tests.conftest import Api
from tests.silent_proxy import SilentProxy
from tests.timeouts import wait_until

__all__ = ["proxy", "service", "settings"]

pytestmark = pytest.mark.slow

TRIAL = {"params": {"lr": 0.123456}}
MARK = b"0.123456"


def trials(service: Api, path: str) -> list[str]:
    return [trial["id"] for trial in service.get(path)["items"]]


@pytest.mark.parametrize("key", [{}, {"Idempotency-Key": "once"}], ids=["without a key", "with a key"])
def test_a_call_whose_commit_has_no_answer_says_that_it_may_be_done(
    service: Api, proxy: SilentProxy, key: dict[str, str]
) -> None:
    path = f"/v1/experiments/{service.create()['name']}/trials"
    proxy.cut_at_commit_of = MARK
    answer = service.http.post(path, json=TRIAL, headers=key)
    assert answer.status_code == 503, answer.text
    assert answer.headers["Retry-After"]
    assert "may have been carried out" in answer.json()["detail"]
    assert "Idempotency-Key" in answer.json()["detail"]
    [done] = wait_until(lambda: trials(service, path))
    if key:
        assert service.post(path, 201, json=TRIAL, headers=key)["id"] == done
        assert trials(service, path) == [done]


def test_a_read_that_loses_its_connection_can_be_repeated(service: Api, proxy: SilentProxy) -> None:
    name = service.create()["name"]
    proxy.cut_on = name.encode()
    answer = service.http.get(f"/v1/experiments/{name}")
    assert answer.status_code == 503, answer.text
    assert answer.json()["detail"] == "the database does not answer or is busy; retry, nothing was lost"
    service.get(f"/v1/experiments/{name}")
