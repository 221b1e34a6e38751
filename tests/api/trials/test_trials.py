"""The life of a trial over HTTP: ask, reports, decisions, end, retry."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest

from service.runtime.proposals import Proposals
from tests.concurrent_calls import at_once
from tests.conftest import Api, a_spec
from tests.timeouts import PATIENCE_SECONDS

pytestmark = pytest.mark.slow


def ran(service: Api, experiment: str, *values: float) -> Any:
    """A trial that has reported the values until it was stopped, and has ended."""
    held = service.ask(experiment)
    assert held
    for value in values:
        if held.report(accuracy=value)["decision"] == "stop":
            held.finish("stopped")
            return held.shown()
    held.finish()
    return held.shown()


def test_an_assignment_says_how_long_a_stopped_trial_may_take_to_leave(service: Api) -> None:
    limits = {"max_trials": 3, "parallelism": 3}
    name = service.create(limits=limits | {"stop_grace_seconds": 600})["name"]
    assert (held := service.ask(name))
    assert held.assignment["stop_grace_seconds"] == 600
    service.http.patch(f"/v1/experiments/{name}", json={"limits": {"stop_grace_seconds": None}}).raise_for_status()
    assert (held := service.ask(name))
    assert held.assignment["stop_grace_seconds"] == 30
    service.post("/v1/experiments", 422, json=a_spec(limits=limits | {"stop_grace_seconds": 0}))


def test_an_experiment_runs_to_its_end_with_nothing_but_http(service: Api) -> None:
    name = service.create(limits={"max_trials": 3, "parallelism": 1})["name"]
    trials = [ran(service, name, 0.1 * number, 0.2 * number) for number in (1, 3, 2)]
    experiment = service.get(f"/v1/experiments/{name}")
    assert (experiment["status"], experiment["end_reason"]) == ("completed", "max_trials")
    assert experiment["counts"]["completed"] == 3
    best = service.get(f"/v1/experiments/{name}/best")
    assert (best["id"], best["values"]) == (trials[1]["id"], {"accuracy": pytest.approx(0.6)})


def test_a_finished_experiment_gives_no_more_trials_and_says_why(service: Api) -> None:
    name = service.create(limits={"max_trials": 1})["name"]
    ran(service, name, 0.5)
    problem = service.post(f"/v1/experiments/{name}/ask", 409)
    assert problem["type"] == "urn:paceline:error:wrong-state"
    assert "completed" in problem["detail"]


def test_parallelism_and_max_trials_hold(service: Api) -> None:
    name = service.create(limits={"max_trials": 3, "parallelism": 2})["name"]
    first, second = service.ask(name), service.ask(name)
    assert first
    assert second
    assert service.ask(name) is None
    first.report(accuracy=1)
    first.finish()
    assert service.ask(name)
    assert service.ask(name) is None


def test_asking_again_with_the_same_key_gives_the_same_trial(service: Api) -> None:
    name = service.create()["name"]
    first, again, other = service.ask(name, "a"), service.ask(name, "a"), service.ask(name, "b")
    assert first
    assert again
    assert other
    assert first.assignment == again.assignment
    assert other.trial != first.trial


def test_only_as_many_checkpoints_are_shown_as_are_kept(service: Api) -> None:
    held = service.ask(service.create(checkpoints={"keep": 2})["name"])
    assert held
    for number in range(4):
        held.report(accuracy=number, checkpoint=f"/store/{number}")
    checkpoints = service.get(f"/v1/trials/{held.trial}/checkpoints")["items"]
    assert [one["uri"] for one in checkpoints] == ["/store/3", "/store/2"]


def test_of_checkpoints_sent_together_the_last_reports_is_kept(service: Api) -> None:
    """The order of the reports counts, as in the slot, when the step metric decreases, too."""
    held = service.ask(service.create(step_metric="epoch")["name"])
    assert held
    metrics = [{"accuracy": 0.5, "epoch": epoch} for epoch in (5, 3)]
    reports = [{"sequence": n, "metrics": one, "checkpoint": f"/{n}"} for n, one in enumerate(metrics)]
    held.call("reports", body={"reports": reports})
    assert [one["uri"] for one in service.get(f"/v1/trials/{held.trial}/checkpoints")["items"]] == ["/1"]


def test_the_step_metric_is_the_step(service: Api) -> None:
    held = service.ask(service.create(step_metric="epoch")["name"])
    assert held
    held.report(epoch=5, accuracy=0.5)
    held.report(epoch=5, loss=1.5)
    problem = held.report(422, accuracy=0.6)
    assert "metrics.epoch" in problem["detail"]
    reports = service.get(f"/v1/trials/{held.trial}/reports")["items"]
    assert [(one["step"], one["metrics"]) for one in reports] == [(5, {"epoch": 5, "accuracy": 0.5, "loss": 1.5})]


def test_asha_stops_a_trial_at_the_report_that_reaches_the_rung(service: Api) -> None:
    name = service.create(early_stopping={"rule": "asha", "min_step": 1, "reduction_factor": 2})["name"]
    for value in (0.9, 0.8):
        ran(service, name, value)
    slow = ran(service, name, 0.1, 0.2, 0.3)
    assert (slow["status"], slow["step"]) == ("pruned", 1)
    decision = service.get(f"/v1/trials/{slow['id']}/decisions")["items"][-1]
    assert decision["decision"] == "stop"
    assert (decision["rule"], decision["milestone"], decision["value"]) == ("asha", 1, 0.1)
    assert decision["cutoff"] == 0.9
    assert decision["compared_count"] == 2
    assert slow["reason"] == decision["reason"]
    assert "accuracy 0.1 at step 1 is below" in decision["reason"]


def test_median_stops_a_trial_below_the_median_of_completed_ones(service: Api) -> None:
    rule = {"rule": "median", "n_startup_trials": 2, "n_warmup_steps": 0}
    name = service.create(early_stopping=rule)["name"]
    for value in (0.9, 0.8, 0.7):
        ran(service, name, value)
    assert ran(service, name, 0.1, 0.9)["status"] == "pruned"
    assert ran(service, name, 0.88)["status"] == "completed"


def test_reaching_the_target_ends_the_experiment_and_its_other_trials(service: Api) -> None:
    name = service.create(objectives=[{"metric": "accuracy", "direction": "maximize", "target": 0.9}])["name"]
    lucky, other = service.ask(name), service.ask(name)
    assert lucky
    assert other
    assert lucky.report(accuracy=0.95)["decision"] == "stop"
    lucky.finish("stopped")
    experiment = service.get(f"/v1/experiments/{name}")
    assert (experiment["status"], experiment["ending"]) == ("running", True)
    assert other.heartbeat()["decision"] == "stop"
    other.finish("stopped")
    experiment = service.get(f"/v1/experiments/{name}")
    assert (experiment["status"], experiment["end_reason"]) == ("completed", "target_reached")
    assert (lucky.shown()["status"], other.shown()["status"]) == ("completed", "stopped")


@pytest.mark.parametrize(
    ("value", "shown_as"),
    [("NaN", "NaN"), ("Infinity", "Infinity"), (" -inf", "-Infinity"), ("nan", "NaN"), ("1e999", "Infinity")],
)
def test_a_trial_whose_objective_is_not_a_finite_number_diverges(service: Api, value: str, shown_as: str) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    assert held.report(accuracy=value)["decision"] == "stop"
    held.finish("stopped")
    shown = held.shown()
    assert (shown["status"], shown["failure_kind"]) == ("failed", "diverged")
    assert shown["reason"] == f"diverged: accuracy is {shown_as} at step 1"
    assert ran(service, name, 0.5)["status"] == "completed"


@pytest.mark.parametrize(
    ("value", "shown_as"),
    [("0.9 good", "the text '0.9 good'"), ([0.9], "a list"), ({"mean": 0.9}, "an object"), (None, "null")],
)
def test_an_objective_that_is_no_number_is_an_error_of_the_code(service: Api, value: Any, shown_as: str) -> None:
    held = service.ask(service.create(failures={"max_retries": 1})["name"])
    assert held
    assert held.report(accuracy=value)["decision"] == "stop"
    held.finish("stopped")
    shown = held.shown()
    assert shown["status"] == "failed"
    assert shown["failure_kind"] == shown["attempts"][-1]["error"]["kind"] == "user_error"
    assert shown["reason"] == f"the objective accuracy must be a number; the trial reported {shown_as} at step 1"


def test_a_bare_nan_in_json_is_kept_as_text(service: Api) -> None:
    held = service.ask(service.create()["name"])
    assert held
    body = b'{"reports": [{"sequence": 0, "metrics": {"accuracy": 0.5, "loss": NaN}}]}'
    headers = held.headers | {"Content-Type": "application/json"}
    service.post(f"/v1/trials/{held.trial}/reports", headers=headers, content=body)
    reports = service.get(f"/v1/trials/{held.trial}/reports")["items"]
    assert reports[0]["metrics"] == {"accuracy": 0.5, "loss": "NaN"}


def test_finish_answers_the_next_assignment_and_a_repeat_the_same_one(service: Api) -> None:
    held = service.ask(service.create()["name"])
    assert held
    held.report(accuracy=0.5)
    first, again = held.finish(next=True), held.finish(next=True)
    assert first["status"] == "completed"
    assert first["next"]["number"] == 1
    assert first == again


def test_a_finish_that_is_repeated_before_its_answer_gets_the_same_assignment(
    service: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both calls need a proposal, and there is capacity for one trial: a holder repeats what is answered late."""
    held = service.ask(service.create(limits={"max_trials": 9, "parallelism": 1})["name"])
    assert held
    held.report(accuracy=0.5)
    both_need_a_proposal = threading.Barrier(2)
    turn = Proposals.turn

    def turn_of_both(self: Proposals, experiment_id: str) -> AbstractContextManager[bool]:
        both_need_a_proposal.wait(PATIENCE_SECONDS)
        return turn(self, experiment_id)

    monkeypatch.setattr(Proposals, "turn", turn_of_both)
    with ThreadPoolExecutor(2) as pool:
        first, again = pool.map(lambda _: held.finish(next=True), range(2))
    assert first["next"]["number"] == 1
    assert first == again


def test_all_callers_that_ask_at_once_get_a_trial(service: Api) -> None:
    """Each new trial takes the number for which the others have a proposal."""
    name = service.create(limits={"max_trials": 64, "parallelism": 64})["name"]
    with ThreadPoolExecutor(16) as pool:
        given = list(pool.map(lambda _: service.ask(name), range(64)))
    assert sorted(one.assignment["number"] for one in given if one) == list(range(64))


def test_no_idempotency_key_gets_the_lease_of_another_caller(service: Api) -> None:
    """A caller that asks with `finish` gives no key: the service has one of its own, which is easy to guess."""
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    tokens = {held.finish(next=True)["next"]["lease"]["token"]}
    for number in range(1, 6):
        asked, again = (service.ask(name, key=f"after-{number}") for _ in range(2))
        assert asked
        assert again
        assert asked.assignment == again.assignment
        tokens.add(asked.assignment["lease"]["token"])
    assert len(tokens) == 6


def test_the_token_of_an_ended_attempt_is_refused(service: Api) -> None:
    held = service.ask(service.create()["name"])
    assert held
    held.report(accuracy=0.5)
    held.finish()
    assert held.report(409, accuracy=0.9)["type"] == "urn:paceline:error:lease-lost"
    assert held.heartbeat(409)["type"] == "urn:paceline:error:lease-lost"
    assert held.finish("failed", 409)["type"] == "urn:paceline:error:lease-lost"


def test_calls_without_a_lease_are_refused(service: Api) -> None:
    name = service.create()["name"]
    held, other = service.ask(name), service.ask(name)
    assert held
    assert other
    assert service.post(f"/v1/trials/{held.trial}/heartbeat", 401)["type"] == "urn:paceline:error:unauthorized"
    service.post(f"/v1/trials/{held.trial}/heartbeat", 401, headers=other.headers)
    service.post("/v1/trials/t-nowhere/heartbeat", 404, headers=held.headers)


def test_enqueued_configurations_are_tried_first(service: Api) -> None:
    held = service.ask(service.create(enqueue=[{"lr": 0.125}])["name"])
    assert held
    assert held.assignment["params"] == {"lr": 0.125}
    assert held.shown()["origin"] == "enqueue"


def test_an_experiment_ends_when_its_grid_is_exhausted(service: Api) -> None:
    space = {"a": {"type": "categorical", "choices": ["x", "y"]}}
    name = service.create(space=space, search={"sampler": "grid"})["name"]
    tried = {ran(service, name, 0.1)["params"]["a"] for _ in range(2)}
    assert tried == {"x", "y"}
    assert service.ask(name) is None
    experiment = service.get(f"/v1/experiments/{name}")
    assert (experiment["status"], experiment["end_reason"]) == ("completed", "space_exhausted")


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_pages_by_value_end_with_the_trials_without_a_value(service: Api, direction: str) -> None:
    objectives = [{"metric": "accuracy", "direction": direction}]
    name = service.create(objectives=objectives, limits={"max_trials": 20, "parallelism": 20})["name"]
    values = [0.5, None, 0.1, 0.5, -2.0, None, 0.5, 3e300, 0.0, None]
    for value in values:
        held = service.ask(name)
        assert held
        if value is None:
            held.fail()
        else:
            held.report(accuracy=value)
            held.finish()
    sign = 1 if direction == "minimize" else -1
    valued = sorted((sign * value, number) for number, value in enumerate(values) if value is not None)
    best = [number for _, number in valued]
    assert paged(service, name, "") == [*best, 1, 5, 9]
    assert paged(service, name, "&status=completed") == best
    assert paged(service, name, "&status=failed") == [1, 5, 9]
    assert paged(service, name, "&status=running") == []
    assert paged(service, name, "&number=5") == [5]
    assert paged(service, name, "&number=5&status=completed") == []
    assert [trial["number"] for trial in service.get(f"/v1/experiments/{name}/trials?number=2")["items"]] == [2]


def paged(service: Api, name: str, query: str) -> list[int]:
    """The numbers of all trials by value, two at a time."""
    path, found = f"/v1/experiments/{name}/trials?sort=value&limit=2{query}", []
    page = service.get(path)
    while page["next_cursor"]:
        found += page["items"]
        page = service.get(f"{path}&cursor={page['next_cursor']}")
    return [trial["number"] for trial in [*found, *page["items"]]]


def test_the_config_has_the_constants_with_the_params_over_them(service: Api) -> None:
    held = service.ask(service.create(config={"epochs": 3}, enqueue=[{"lr": 0.5}])["name"])
    assert held
    assert held.assignment["config"] == {"epochs": 3, "lr": 0.5}


def test_an_exhausted_experiment_can_still_be_stopped(service: Api) -> None:
    space = {"a": {"type": "categorical", "choices": ["x"]}}
    name = service.create(space=space, search={"sampler": "grid"})["name"]
    held = service.ask(name)
    assert held
    assert service.ask(name) is None
    service.post(f"/v1/experiments/{name}/stop")
    assert held.heartbeat()["decision"] == "stop"
    held.finish("stopped")
    assert service.get(f"/v1/experiments/{name}")["status"] == "stopped"


def test_a_trial_stopped_before_its_first_report_does_not_affect_the_search(service: Api) -> None:
    search = {"sampler": "tpe", "options": {"n_startup_trials": 1}}
    name = service.create(search=search, limits={"max_trials": 20})["name"]
    held = service.ask(name)
    assert held
    service.post(f"/v1/trials/{held.trial}/stop")
    held.finish()
    assert held.shown()["status"] == "stopped"
    for number in range(4):
        assert ran(service, name, 0.1 * number)["status"] == "completed"


def test_a_key_whose_trial_has_ended_gives_a_conflict_and_not_another_trial(service: Api) -> None:
    name = service.create()["name"]
    held = service.ask(name, "once")
    assert held
    held.report(accuracy=1)
    held.finish()
    problem = service.post(f"/v1/experiments/{name}/ask", 409, headers={"Idempotency-Key": "once"})
    assert "new key" in problem["detail"]


def test_concurrent_asks_with_one_key_get_one_trial(service: Api) -> None:
    name = service.create()["name"]
    path, headers = f"/v1/experiments/{name}/ask", {"Idempotency-Key": "once"}
    statuses = at_once(8, lambda: service.http.post(path, headers=headers).status_code)
    assert set(statuses) == {200}
    assert service.get(f"/v1/experiments/{name}")["counts"]["running"] == 1


def test_a_repeated_finish_whose_next_trial_has_ended_answers_no_assignment(service: Api) -> None:
    held = service.ask(service.create()["name"])
    assert held
    held.report(accuracy=0.5)
    following = type(held)(service, held.finish(next=True)["next"])
    following.report(accuracy=0.5)
    following.finish()
    assert held.finish(next=True)["next"] is None
