"""Experiments over HTTP: creating, reading and controlling them; a wrong spec gets every mistake in one answer."""

import csv
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import yaml

from tests.concurrent_calls import at_once
from tests.conftest import Api, a_spec

pytestmark = pytest.mark.slow

CODE = b"def train_fn(config):\n    pass\n"


def torch_spec(**changes: Any) -> dict[str, Any]:
    return a_spec(trainer={"kind": "torch", "entrypoint": "train:train_fn"}) | changes


def sent(service: Api, spec: dict[str, Any], *code: tuple[str, bytes]) -> httpx.Response:
    files = [("spec", ("e.yaml", yaml.safe_dump(spec).encode())), *(("code", part) for part in code)]
    return service.http.post("/v1/experiments", files=files)


def paths_of(response: httpx.Response) -> set[str]:
    assert response.status_code == 422, response.text
    assert response.headers["content-type"] == "application/problem+json"
    return {error["path"] for error in response.json()["errors"]}


def test_json_yaml_and_the_default_of_curl_are_parsed(service: Api) -> None:
    understood: dict[str, Callable[[Any], str]] = {
        "application/json": json.dumps,
        "application/yaml": yaml.safe_dump,
        "application/x-www-form-urlencoded": json.dumps,
    }
    for content_type, dump in understood.items():
        headers = {"Content-Type": content_type}
        service.post("/v1/experiments", 201, content=dump(a_spec()).encode(), headers=headers)


def test_yaml_reads_1e_minus_4_as_a_number(service: Api) -> None:
    text = yaml.safe_dump(a_spec()) + "config: {decay: 1e-4}\n"
    headers = {"Content-Type": "application/yaml"}
    created = service.post("/v1/experiments", 201, content=text.encode(), headers=headers)
    assert created["spec"]["config"] == {"decay": 1e-4}


def test_one_call_from_a_laptop_sends_spec_and_code(service: Api) -> None:
    response = sent(service, torch_spec(), ("train.py", CODE))
    assert response.status_code == 201, response.text
    package = response.json()["spec"]["trainer"]["package"]
    got = service.http.get(f"/v1/packages/{package}")
    assert got.content == CODE
    assert 'filename="train.py"' in got.headers["content-disposition"]


def test_several_files_of_code_are_one_package(service: Api) -> None:
    files = [("model.py", b"x = 1\n"), ("train.py", b"from model import x\n" + CODE)]
    packages = {
        sent(service, torch_spec(), *order).json()["spec"]["trainer"]["package"] for order in (files, files[::-1])
    }
    assert len(packages) == 1


def test_every_mistake_is_reported_with_its_path(service: Api) -> None:
    wrong = a_spec(
        name="no spaces, please",
        space={"lr": {"type": "float", "low": 0, "high": 1, "log": True}, "n": {"type": "int", "low": 2, "high": 1}},
        search={"sampler": "magic"},
        early_stopping={"rule": "asha", "reduction_factor": 1},
        limits={"max_trials": 0},
        bogus=1,
    )
    response = service.http.post("/v1/experiments", json=wrong)
    assert paths_of(response) == {
        "name",
        "space.lr.low",
        "space.n.low",
        "search.sampler",
        "early_stopping.reduction_factor",
        "limits.max_trials",
        "bogus",
    }
    by_path = {error["path"]: error["message"] for error in response.json()["errors"]}
    assert by_path["space.lr.low"] == "must be > 0 when log is true"
    assert "tpe" in by_path["search.sampler"]
    assert "max_trials" not in by_path["bogus"]
    assert "space" in by_path["bogus"]


def test_mistakes_across_fields_are_reported(service: Api) -> None:
    wrong = a_spec(config={"lr": 1}, enqueue=[{"lr": 7.0}, {"rl": 0.1}], trainer={"kind": "torch"})
    response = service.http.post("/v1/experiments", json=wrong)
    assert paths_of(response) == {"config.lr", "enqueue.0.lr", "enqueue.1.rl", "enqueue.1.lr", "trainer.entrypoint"}


def test_an_unsuitable_sampler_is_refused_at_submit(service: Api) -> None:
    response = service.http.post("/v1/experiments", json=a_spec(search={"sampler": "grid"}))
    assert paths_of(response) == {"space.lr"}


def test_a_body_that_is_neither_json_nor_yaml_is_refused(service: Api) -> None:
    for content_type, body in [("application/json", b"{"), ("application/yaml", b"a: [")]:
        problem = service.post("/v1/experiments", 400, content=body, headers={"Content-Type": content_type})
        assert problem["type"] == "urn:paceline:error:bad-request"
    problem = service.post("/v1/experiments", 422, json=[1, 2])
    assert problem["errors"] == [{"path": "", "message": "must be an object with name, space, objectives, …"}]


def test_code_that_cannot_run_is_refused_before_anything_runs(service: Api) -> None:
    syntax = sent(service, torch_spec(), ("train.py", b"def train_fn(config:\n"))
    assert paths_of(syntax) == {"trainer.package"}
    assert "train.py line 1" in syntax.text
    missing = sent(service, torch_spec(), ("train.py", b"def evaluate():\n    pass\n"))
    assert paths_of(missing) == {"trainer.entrypoint"}
    assert "it has: evaluate" in missing.text
    module = sent(service, torch_spec(), ("main.py", CODE))
    assert "it has: main" in module.text
    assert service.get("/v1/experiments")["items"] == []


def test_a_training_function_of_two_arguments_is_refused(service: Api) -> None:
    response = sent(service, torch_spec(), ("train.py", b"def train_fn(config, more):\n    pass\n"))
    assert paths_of(response) == {"trainer.entrypoint"}
    assert sent(service, torch_spec(), ("train.py", b"def train_fn(config, more=1):\n    pass\n")).status_code == 201


def test_unknown_parts_of_a_form_are_mistakes(service: Api) -> None:
    spec = ("e.yaml", yaml.safe_dump(torch_spec()).encode())
    response = service.http.post("/v1/experiments", files={"spec": spec, "cod": ("train.py", CODE)})
    assert paths_of(response) == {"cod"}
    assert paths_of(sent(service, torch_spec(), ("train.py", CODE), ("train.py", b"x = 1"))) == {"code"}


def test_an_unknown_package_is_a_mistake(service: Api) -> None:
    trainer = {"kind": "torch", "entrypoint": "train:train_fn", "package": "sha256:" + "0" * 64}
    assert paths_of(service.http.post("/v1/experiments", json=a_spec(trainer=trainer))) == {"trainer.package"}


def test_a_taken_name_is_refused_and_a_repeated_key_is_not(service: Api) -> None:
    spec, headers = a_spec(), {"Idempotency-Key": "once"}
    first = service.post("/v1/experiments", 201, json=spec, headers=headers)
    again = service.post("/v1/experiments", 201, json=spec, headers=headers)
    assert first["id"] == again["id"]
    assert service.post("/v1/experiments", 409, json=spec)["type"] == "urn:paceline:error:name-taken"
    service.post("/v1/experiments", 409, json=a_spec(), headers=headers)


def test_concurrent_calls_with_one_name_create_one_experiment(service: Api) -> None:
    spec = a_spec()
    statuses = at_once(8, lambda: service.http.post("/v1/experiments", json=spec).status_code)
    assert sorted(statuses) == [201] + [409] * 7


def test_a_repeat_that_overlaps_the_first_call_gets_its_answer(service: Api) -> None:
    spec, headers = a_spec(), {"Idempotency-Key": "once"}
    answers = at_once(8, lambda: service.http.post("/v1/experiments", json=spec, headers=headers))
    assert [answer.status_code for answer in answers] == [201] * 8
    assert len({answer.json()["id"] for answer in answers}) == 1


def test_experiments_are_found_by_name_and_by_id(service: Api) -> None:
    created = service.create()
    assert service.get(f"/v1/experiments/{created['id']}") == service.get(f"/v1/experiments/{created['name']}")
    assert service.get("/v1/experiments/nothing", 404)["type"] == "urn:paceline:error:not-found"


def test_lists_have_pages_and_filters_for_status_and_tag(service: Api) -> None:
    names = [service.create(tags={"team": "vision" if number % 2 else "text"})["name"] for number in range(5)]
    seen, cursor = [], None
    while True:
        page = service.get("/v1/experiments", params={"limit": 2} | ({"cursor": cursor} if cursor else {}))
        seen += [one["name"] for one in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == names[::-1]
    tagged = service.get("/v1/experiments", params={"tag": "team:vision"})["items"]
    assert [one["name"] for one in tagged] == [names[3], names[1]]
    service.post(f"/v1/experiments/{names[0]}/pause")
    paused = service.get("/v1/experiments", params={"status": "paused"})["items"]
    assert [one["name"] for one in paused] == [names[0]]


def test_trials_are_listed_in_pages_by_value_and_as_csv(service: Api) -> None:
    name = service.create()["name"]
    for value in (0.2, 0.9, 0.5):
        held = service.ask(name)
        assert held
        held.report(accuracy=value)
        held.finish()
    service.ask(name)
    path = f"/v1/experiments/{name}/trials"
    first = service.get(path, params={"sort": "value", "limit": 2})
    rest = service.get(path, params={"sort": "value", "limit": 2, "cursor": first["next_cursor"]})
    values = [one["value"] for one in first["items"] + rest["items"]]
    assert values == [0.9, 0.5, 0.2, None]
    lines = service.http.get(path, params={"format": "csv"}).text.splitlines()
    assert lines[0].startswith("number,id,status,accuracy,step,lr,")
    assert len(lines) == 5


def test_no_two_columns_of_the_csv_have_one_name(service: Api) -> None:
    objectives = [{"metric": name, "direction": "maximize"} for name in ("status", "score")]
    space = {name: {"type": "float", "low": 0, "high": 1} for name in ("score", "id", "feasible")}
    constraints = [{"metric": "feasible", "max": 2}]
    name = service.create(space=space, objectives=objectives, constraints=constraints)["name"]
    held = service.ask(name)
    assert held
    metrics = {"status": 0.5, "score": 0.25, "feasible": 1}
    held.call("reports", body={"reports": [{"sequence": 0, "metrics": metrics}]})
    text = service.http.get(f"/v1/experiments/{name}/trials", params={"format": "csv"}).text
    [row] = csv.DictReader(text.splitlines())
    assert len(row) == len(text.splitlines()[0].split(","))
    assert [row[one] for one in ("status", "metrics.status", "score", "metrics.feasible", "feasible")] == [
        "running",
        "0.5",
        "0.25",
        "1.0",
        "True",
    ]
    assert {"params.id", "params.score", "params.feasible"} < row.keys()


def test_a_paused_experiment_starts_nothing_until_it_is_resumed(service: Api) -> None:
    name = service.create()["name"]
    running = service.ask(name)
    assert running
    for _ in range(2):
        assert service.post(f"/v1/experiments/{name}/pause")["status"] == "paused"
    assert service.ask(name) is None
    running.report(accuracy=0.5)
    running.finish()
    assert running.shown()["status"] == "completed"
    service.post(f"/v1/experiments/{name}/resume")
    assert service.ask(name)


def test_a_stopped_experiment_ends_after_its_trials_have_stopped(service: Api) -> None:
    name = service.create(enqueue=[{"lr": 0.1}, {"lr": 0.2}])["name"]
    held = service.ask(name)
    assert held
    shown = service.post(f"/v1/experiments/{name}/stop")
    assert (shown["status"], shown["ending"], shown["end_reason"]) == ("running", True, "user")
    assert shown["counts"]["stopped"] == 1
    assert held.report(accuracy=0.5, checkpoint="/store/last")["decision"] == "stop"
    held.finish("stopped")
    shown = service.post(f"/v1/experiments/{name}/stop")
    assert (shown["status"], shown["ending"]) == ("stopped", False)
    assert held.shown()["checkpoint"]["uri"] == "/store/last"
    assert service.post(f"/v1/experiments/{name}/pause", 409)["experiment_status"] == "stopped"


def test_what_a_limit_has_ended_is_continued_by_raising_it(service: Api) -> None:
    name = service.create(limits={"max_trials": 1})["name"]
    held = service.ask(name)
    assert held
    held.report(accuracy=0.5)
    held.finish()
    detail = service.post(f"/v1/experiments/{name}/resume", 409)["detail"]
    assert (
        "is completed (max_trials); to continue it, change the limit or target that ended it (limits.max_trials)"
        in detail
    )


def test_a_cancel_tells_holders_to_end_the_workers_now(service: Api) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    service.post(f"/v1/experiments/{name}/stop")
    assert held.heartbeat()["decision"] == "stop"
    service.post(f"/v1/experiments/{name}/cancel")
    order = held.heartbeat()
    assert (order["decision"], order["reason"]) == ("kill", "the experiment ends: a user stopped it")
    held.fail("lost", "killed")
    assert service.get(f"/v1/experiments/{name}")["status"] == "stopped"
    assert held.shown()["status"] == "stopped"


def test_only_a_finished_experiment_can_be_deleted(service: Api) -> None:
    name = service.create()["name"]
    assert "cancel it first" in service.http.delete(f"/v1/experiments/{name}").json()["detail"]
    service.post(f"/v1/experiments/{name}/cancel")
    for status in (204, 404):
        assert service.http.delete(f"/v1/experiments/{name}").status_code == status
    service.get(f"/v1/experiments/{name}", 404)


def test_an_experiment_that_ends_says_what_may_still_be_done(service: Api) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    service.post(f"/v1/experiments/{name}/stop")
    for verb in ("pause", "resume"):
        refused = service.post(f"/v1/experiments/{name}/{verb}", 409)
        assert refused["detail"] == f"experiment {name} is ending (user) and starts no more trials"
    refused = service.http.delete(f"/v1/experiments/{name}").json()
    assert "is ending (user); delete it when its last trials have ended" in refused["detail"]
    assert refused["allowed"] == ["stop", "cancel"]
    held.fail("lost", "killed")
    assert service.http.delete(f"/v1/experiments/{name}").status_code == 204


def test_one_trial_can_be_stopped(service: Api) -> None:
    name = service.create(enqueue=[{"lr": 0.1}, {"lr": 0.2}], limits={"max_trials": 2})["name"]
    running = service.ask(name)
    assert running
    queued = service.get(f"/v1/experiments/{name}/trials")["items"][1]
    for trial in (running.trial, queued["id"]):
        service.post(f"/v1/trials/{trial}/stop")
    assert running.heartbeat()["decision"] == "stop"
    running.finish("stopped")
    assert service.get(f"/v1/experiments/{name}")["counts"]["stopped"] == 2
    service.post("/v1/trials/t-nothing/stop", 404)


def test_best_is_not_found_before_a_trial_has_completed(service: Api) -> None:
    name = service.create()["name"]
    assert "has completed yet" in service.get(f"/v1/experiments/{name}/best", 404)["detail"]


def test_an_experiment_fails_when_all_of_its_trials_fail(service: Api) -> None:
    name = service.create(limits={"max_trials": 2})["name"]
    for _ in range(2):
        held = service.ask(name)
        assert held
        held.fail()
    shown = service.get(f"/v1/experiments/{name}")
    assert (shown["status"], shown["end_reason"]) == ("failed", "too_many_failures")
    assert "ValueError: no" in shown["end_detail"]


def test_an_answer_shows_a_written_experiment_as_a_later_one_reads_it(service: Api) -> None:
    """The answer to a change is made from the row in memory."""
    created = service.create(
        tags={"owner": "me"}, config={"decay": 1e-4, "whole": 2.0, "big": 2**60}, enqueue=[{"lr": 0.01}]
    )
    path = f"/v1/experiments/{created['name']}"
    assert list(created["spec"]) == list(service.get(path)["spec"])
    assert created == service.get(path)
    changed = service.http.patch(path, json={"priority": 2, "limits": {"max_trials": 7}}).json()
    assert changed["priority"] == 2
    assert changed == service.get(path)
    for call in ("pause", "resume", "stop"):
        assert service.post(f"{path}/{call}") == service.get(path), call
