"""A user retries a trial, over HTTP."""

from collections.abc import Callable
from typing import Any

import pytest

from service.domain.retry_policy import MAX_LOSSES
from service.domain.statuses import TRIAL_REVIVALS, TrialStatus
from tests.conftest import Api, Held

pytestmark = pytest.mark.slow

ENDS: dict[TrialStatus, Callable[[Held], Any]] = {
    TrialStatus.COMPLETED: lambda held: (held.report(accuracy=0.5), held.finish()),
    TrialStatus.FAILED: lambda held: held.fail(),
    TrialStatus.STOPPED: lambda held: held.finish("stopped"),
}


def asked(service: Api, name: str) -> Held:
    held = service.ask(name)
    assert held
    return held


def test_a_failed_trial_is_retried_from_its_newest_checkpoint(service: Api) -> None:
    name = service.create()["name"]
    held = asked(service, name)
    held.report(accuracy=0.5, checkpoint="/store/one")
    held.fail()
    assert service.get(f"/v1/experiments/{name}")["counts"]["failed"] == 1
    shown = service.post(f"/v1/trials/{held.trial}/retry")
    assert (shown["status"], shown["failure_kind"], shown["ended_at"]) == ("queued", None, None)
    assert "a user" in shown["reason"]
    again = asked(service, name)
    assert (again.trial, again.assignment["attempt"]) == (held.trial, 2)
    assert again.assignment["resume"] == {"uri": "/store/one", "step": 1}
    again.report(accuracy=0.75)
    again.finish()
    shown = again.shown()
    assert (shown["status"], shown["value"], shown["step"]) == ("completed", 0.75, 2)
    assert len(shown["attempts"]) == 2


def test_a_retry_clears_the_stop_request(service: Api) -> None:
    name = service.create()["name"]
    held = asked(service, name)
    service.post(f"/v1/trials/{held.trial}/stop")
    assert held.heartbeat()["decision"] == "stop"
    held.finish("stopped")
    service.post(f"/v1/trials/{held.trial}/retry")
    again = asked(service, name)
    assert again.trial == held.trial
    assert again.heartbeat()["decision"] == "continue"
    held.heartbeat(409)


def test_repeating_a_retry_is_harmless(service: Api) -> None:
    name = service.create()["name"]
    held = asked(service, name)
    held.fail()
    first, again = (service.post(f"/v1/trials/{held.trial}/retry") for _ in range(2))
    assert first == again
    kinds = [event["kind"] for event in service.events(name)]
    assert kinds[-1] == "trial.queued"
    assert kinds.count("trial.queued") == 1


def test_only_the_statuses_in_the_map_of_moves_can_be_retried(service: Api) -> None:
    for status, end in ENDS.items():
        held = asked(service, service.create()["name"])
        end(held)
        assert held.shown()["status"] == status
        allowed = TrialStatus.QUEUED in TRIAL_REVIVALS.get(status, ())
        answer = service.post(f"/v1/trials/{held.trial}/retry", 200 if allowed else 409)
        if not allowed:
            assert answer["retryable"] == ["failed", "stopped"]
            assert f"is {status}" in answer["detail"]


def test_a_running_or_unknown_trial_cannot_be_retried(service: Api) -> None:
    held = asked(service, service.create()["name"])
    assert service.post(f"/v1/trials/{held.trial}/retry", 409)["trial_status"] == "running"
    service.post("/v1/trials/t-000000000000/retry", 404)


def test_trials_of_an_ended_experiment_cannot_be_retried(service: Api) -> None:
    name = service.create(limits={"max_trials": 1})["name"]
    held = asked(service, name)
    held.fail()
    problem = service.post(f"/v1/trials/{held.trial}/retry", 409)
    assert (problem["experiment_status"], problem["end_reason"]) == ("failed", "too_many_failures")


def test_a_retry_restores_the_whole_budget_of_losses(service: Api) -> None:
    name = service.create(limits={"max_trials": 2})["name"]
    for _ in range(MAX_LOSSES + 1):
        held = asked(service, name)
        held.fail("lost", "its node is gone")
    assert held.shown()["status"] == "failed"
    service.post(f"/v1/trials/{held.trial}/retry")
    asked(service, name).fail("lost", "its node is gone")
    assert held.shown()["status"] == "queued"


def test_a_retry_does_not_use_up_max_retries(service: Api) -> None:
    name = service.create(failures={"max_retries": 1})["name"]
    for status in ("queued", "failed"):
        held = asked(service, name)
        held.fail()
        assert held.shown()["status"] == status
    service.post(f"/v1/trials/{held.trial}/retry")
    for status in ("queued", "failed"):
        asked(service, name).fail()
        assert held.shown()["status"] == status


def test_a_retried_trial_no_longer_counts_as_failed(service: Api) -> None:
    name = service.create(failures={"max_failed_trials": 1})["name"]
    held = asked(service, name)
    held.fail()
    service.post(f"/v1/trials/{held.trial}/retry")
    asked(service, name).fail()
    assert service.get(f"/v1/experiments/{name}")["status"] == "running"


@pytest.mark.parametrize("sampler", ["tpe", "grid"])
def test_the_search_treats_a_retried_trial_as_running(service: Api, sampler: str) -> None:
    space = {"n": {"type": "int", "low": 0, "high": 2}}
    name = service.create(space=space, search={"sampler": sampler, "seed": 1})["name"]
    held = asked(service, name)
    held.fail()
    service.post(f"/v1/trials/{held.trial}/retry")
    assert asked(service, name).trial == held.trial
    assert asked(service, name).trial != held.trial
