"""A live experiment's spec, changed over HTTP."""

from typing import Any

import pytest
import yaml

from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Space
from search.study import Study, propose
from service.runtime.proposals import Proposals
from service.settings import Settings
from service.store.sql.database import Database
from service.store.tables import ExperimentRow
from tests.api.experiments.changed_experiments import asked, changes, patched, ran
from tests.conftest import Api, running

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]

SPACE: dict[str, dict[str, Any]] = {
    "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
    "hidden": {"type": "int", "low": 16, "high": 256, "step": 16},
    "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
    "momentum": {"type": "float", "low": 0.0, "high": 0.99, "when": {"optimizer": "sgd"}},
}


def paths_of(problem: Any) -> set[str]:
    return {error["path"] for error in problem["errors"]}


def test_each_change_is_in_the_spec_and_an_event_with_before_and_after(service: Api) -> None:
    name = service.create(tags={"team": "vision", "old": "x"})["name"]
    limits = {"max_trials": 20, "max_seconds": 60, "no_improvement": {"trials": 5}}
    failures = {"max_failed_trials": 3}
    shown = patched(service, name, limits=limits, failures=failures, priority=7, tags={"team": "text", "old": None})
    assert shown["spec"]["limits"]["max_trials"] == 20
    assert shown["spec"]["limits"]["parallelism"] == 10
    assert (shown["priority"], shown["tags"]) == (7, {"team": "text"})
    assert sorted(changes(service, name)) == [
        ("failures.max_failed_trials", None, 3),
        ("limits.max_seconds", None, 60),
        ("limits.max_trials", 10, 20),
        ("limits.no_improvement", None, {"trials": 5, "min_delta": 0}),
        ("priority", 0, 7),
        ("tags.old", "x", None),
        ("tags.team", "vision", "text"),
    ]
    assert [one["name"] for one in service.get("/v1/experiments", params={"tag": "team:text"})["items"]] == [name]


def test_repeating_a_change_changes_nothing(service: Api) -> None:
    created = service.create()
    name = created["name"]
    for _ in range(2):
        patched(service, name, limits={"max_trials": 20})
    assert len(changes(service, name)) == 1
    whole = service.get(f"/v1/experiments/{name}")["spec"]
    patched(service, name, **whole)
    assert len(changes(service, name)) == 1


def test_null_removes_a_limit(service: Api) -> None:
    name = service.create(limits={"max_trials": 5, "parallelism": 3, "max_seconds": 60})["name"]
    shown = patched(service, name, limits={"max_seconds": None, "parallelism": None})
    assert shown["spec"]["limits"]["max_seconds"] is None
    assert shown["spec"]["limits"]["parallelism"] == 1
    shown = patched(service, name, limits={"max_seconds": 60, "max_trials": None})
    assert shown["spec"]["limits"]["max_trials"] is None


def test_a_patch_may_be_yaml(service: Api) -> None:
    name = service.create()["name"]
    for content_type in ("application/yaml", "application/x-www-form-urlencoded"):
        body = yaml.safe_dump({"limits": {"max_trials": 33}}).encode()
        response = service.http.patch(f"/v1/experiments/{name}", content=body, headers={"Content-Type": content_type})
        assert response.json()["spec"]["limits"]["max_trials"] == 33


def test_refused_changes_name_the_fields_that_can_change(service: Api) -> None:
    name = service.create()["name"]
    problem = patched(
        service, name, 422, name="other", config={"a": 1}, trainer={"kind": "torch"}, bogus=1, limits={"max_trials": 0}
    )
    assert paths_of(problem) == {"name", "config", "trainer", "bogus", "limits.max_trials"}
    by_path = {error["path"]: error["message"] for error in problem["errors"]}
    for word in ("limits", "tags", "early_stopping", "space (only narrower)"):
        assert word in by_path["config"]
    assert by_path["bogus"].startswith("is unknown; these fields can be changed: ")
    misplaced = patched(service, name, 422, max_trials=3)["errors"]
    assert misplaced == [{"path": "max_trials", "message": "is unknown; did you mean limits.max_trials?"}]
    assert changes(service, name) == []
    assert patched(service, name, 422, limits={"max_trails": 5})["errors"][0]["path"] == "limits.max_trails"
    mistaken: tuple[Any, ...] = ([], 1, "limits")
    for wrong in mistaken:
        assert service.http.patch(f"/v1/experiments/{name}", json=wrong).status_code == 422


def test_a_raised_limit_lets_more_trials_start_and_a_lowered_one_ends_it(service: Api) -> None:
    name = service.create(limits={"max_trials": 1, "parallelism": 1})["name"]
    first = asked(service, name)
    assert service.ask(name) is None
    patched(service, name, limits={"max_trials": 3, "parallelism": 2})
    second = asked(service, name)
    for held in (first, second):
        held.report(accuracy=0.5)
        held.finish()
    shown = patched(service, name, limits={"max_trials": 2})
    assert (shown["status"], shown["end_reason"]) == ("completed", "max_trials")


def test_max_trials_may_be_lowered_below_the_enqueued_trials(service: Api) -> None:
    name = service.create(enqueue=[{"lr": 0.5}, {"lr": 0.25}])["name"]
    assert patched(service, name, limits={"max_trials": 1})["spec"]["enqueue"] == [{"lr": 0.5}]
    for _ in range(2):
        ran(service, name, 0.5)
    assert service.get(f"/v1/experiments/{name}")["end_reason"] == "max_trials"


def test_a_lowered_max_trials_leaves_room_for_the_confirmations(service: Api) -> None:
    enqueued = [{"lr": (number + 1) / 100} for number in range(9)]
    name = service.create(enqueue=enqueued, confirm={"top": 2, "seeds": 2}, limits={"max_trials": 20})["name"]
    assert len(patched(service, name, limits={"max_trials": 10})["spec"]["enqueue"]) == 6


def test_limits_that_are_already_exceeded_end_the_experiment(service: Api) -> None:
    name = service.create()["name"]
    for value in (0.5, 0.4, 0.3):
        ran(service, name, value)
    shown = patched(service, name, limits={"no_improvement": {"trials": 2}})
    assert (shown["status"], shown["end_reason"]) == ("completed", "no_improvement")
    name = service.create()["name"]
    assert patched(service, name, limits={"max_seconds": 1e-6})["end_reason"] == "max_seconds"


def test_a_target_that_is_already_reached_ends_the_experiment(service: Api) -> None:
    objective = {"metric": "accuracy", "direction": "maximize", "target": 0.9}
    name = service.create(objectives=[objective])["name"]
    ran(service, name, 0.75)
    held = asked(service, name)
    assert patched(service, name, objectives=[objective | {"target": 0.8}])["end_reason"] is None
    shown = patched(service, name, objectives=[objective | {"target": 0.7}])
    assert (shown["end_reason"], shown["ending"]) == ("target_reached", True)
    assert "trial 0: accuracy 0.75 reached the target 0.7" in shown["end_detail"]
    assert held.heartbeat()["decision"] == "stop"
    held.finish("stopped")
    other = service.create(objectives=[objective])["name"]
    problem = patched(service, other, 422, objectives=[{"metric": "loss", "direction": "minimize"}])
    assert "only targets" in problem["detail"]


def test_a_new_early_stopping_rule_does_not_inherit_options(service: Api) -> None:
    name = service.create(early_stopping={"rule": "asha", "min_step": 2})["name"]
    shown = patched(service, name, early_stopping={"reduction_factor": 5})
    assert shown["spec"]["early_stopping"]["min_step"] == 2
    assert shown["spec"]["early_stopping"]["reduction_factor"] == 5
    shown = patched(service, name, early_stopping={"rule": "median", "n_startup_trials": 2})
    assert shown["spec"]["early_stopping"]["rule"] == "median"
    assert "min_step" not in shown["spec"]["early_stopping"]
    problem = patched(service, name, 422, early_stopping={"min_step": 1})
    assert paths_of(problem) == {"early_stopping.min_step"}
    assert patched(service, name, early_stopping=None)["spec"]["early_stopping"]["rule"] == "none"
    fields = [field for field, _, _ in changes(service, name)]
    assert fields == ["early_stopping.reduction_factor", "early_stopping", "early_stopping"]


def test_a_tag_and_a_parameter_may_be_called_rule(service: Api) -> None:
    line = {"type": "float", "low": 0, "high": 1}
    name = service.create(tags={"team": "vision"}, space={"rule": line, "lr": line})["name"]
    shown = patched(service, name, tags={"rule": "x"}, space={"rule": {"high": 0.5}})
    assert shown["tags"] == {"team": "vision", "rule": "x"}
    assert {one: parameter["high"] for one, parameter in shown["spec"]["space"].items()} == {"rule": 0.5, "lr": 1}
    patched(service, name, tags={"rule": "y"})
    patched(service, name, tags={"rule": None})
    assert changes(service, name) == [
        ("space.rule.high", 1.0, 0.5),
        ("tags.rule", None, "x"),
        ("tags.rule", "x", "y"),
        ("tags.rule", "y", None),
    ]


def test_a_new_rule_judges_the_next_report(service: Api) -> None:
    name = service.create()["name"]
    for value in (0.9, 0.8):
        ran(service, name, value)
    slow = asked(service, name)
    assert slow.report(accuracy=0.1)["decision"] == "continue"
    patched(service, name, early_stopping={"rule": "threshold", "lower": 0.5})
    assert slow.report(accuracy=0.2)["decision"] == "stop"


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_narrowed_space_applies_to_later_proposals(service: Api, sampler: str) -> None:
    search = {"sampler": sampler, "seed": 3, "options": {"n_startup_trials": 2} if sampler == "tpe" else {}}
    name = service.create(space=SPACE, search=search, limits={"max_trials": 100, "parallelism": 100})["name"]
    for number in range(6):
        ran(service, name, number / 10)
    narrower = {"lr": {"low": 0.01, "high": 0.1}, "hidden": {"low": 64, "high": 128}}
    shown = patched(service, name, space=narrower)
    assert shown["spec"]["space"]["lr"] == SPACE["lr"] | {
        "low": 0.01,
        "high": 0.1,
        "step": None,
        "when": {},
        "prior": None,
    }
    for number in range(6):
        params = ran(service, name, number / 10).assignment["params"]
        assert 0.01 <= params["lr"] <= 0.1
        assert params["hidden"] in range(64, 129, 16)


def test_enqueued_params_must_fit_the_narrowed_space_and_queued_trials_stay(service: Api) -> None:
    name = service.create(enqueue=[{"lr": 0.5}, {"lr": 0.05}])["name"]
    shown = patched(service, name, space={"lr": {"high": 0.1}})
    assert shown["spec"]["enqueue"] == [{"lr": 0.05}]
    problem = service.post(f"/v1/experiments/{name}/trials", 422, json={"params": {"lr": 0.5}})
    assert paths_of(problem) == {"params.lr"}
    assert asked(service, name).assignment["params"] == {"lr": 0.5}


def test_removing_a_choice_removes_the_parameters_that_exist_only_under_it(service: Api) -> None:
    name = service.create(space=SPACE, limits={"max_trials": 50, "parallelism": 50})["name"]
    for _ in range(3):
        ran(service, name, 0.5)
    shown = patched(service, name, space={"optimizer": {"choices": ["adamw"]}})
    assert set(shown["spec"]["space"]) == {"lr", "hidden", "optimizer"}
    for _ in range(5):
        params = ran(service, name, 0.5).assignment["params"]
        assert params["optimizer"] == "adamw"
        assert "momentum" not in params


def test_a_grid_continues_in_the_narrowed_space(service: Api) -> None:
    space = {"n": {"type": "int", "low": 0, "high": 5}}
    search = {"sampler": "grid", "options": {"search_space": {"n": [0, 1, 4, 5]}}}
    name = service.create(space=space, search=search)["name"]
    tried = [ran(service, name, 0.5).assignment["params"]["n"]]
    patched(service, name, space={"n": {"high": 4}})
    while (held := service.ask(name)) is not None:
        tried.append(held.assignment["params"]["n"])
        held.report(accuracy=0.5)
        held.finish()
    assert sorted(tried) == sorted({*tried})
    assert set(tried[1:]) == {0, 1, 4} - {tried[0]}


@pytest.mark.parametrize(
    ("wrong", "path", "word"),
    [
        ({"lr": {"low": 1e-5}}, "space.lr.low", "narrowed"),
        ({"lr": {"high": 2}}, "space.lr.high", "narrowed"),
        ({"lr": {"low": 0.5, "high": 0.1}}, "space.lr.low", "must be <= high"),
        ({"lr": {"log": False}}, "space.lr.log", "cannot be changed"),
        ({"lr": {"type": "int", "low": 1, "high": 1, "step": 1}}, "space.lr.type", "it is float"),
        ({"lr": None}, "space.lr", "cannot be removed"),
        ({"new": {"type": "int", "low": 0, "high": 1}}, "space.new", "cannot be added"),
        ({"hidden": {"low": 20}}, "space.hidden.low", "multiple of 16"),
        ({"hidden": {"step": 8}}, "space.hidden.step", "cannot be changed"),
        ({"optimizer": {"choices": ["adamw", "lion"]}}, "space.optimizer.choices.1", "can only be removed"),
        ({"optimizer": {"choices": []}}, "space.optimizer.choices", "at least one"),
        ({"hidden": {"when": {"optimizer": "sgd"}}}, "space.hidden.when.optimizer", "cannot be changed"),
        ({"momentum": {"when": {"optimizer": ["sgd", "adamw"]}}}, "space.momentum.when.optimizer", "cannot be changed"),
        ({"momentum": {"when": None}}, "space.momentum.when.optimizer", "cannot be changed"),
        (None, "space", ""),
        ({"lr": 5}, "space.lr", ""),
    ],
)
def test_a_space_cannot_be_widened_or_become_another(service: Api, wrong: Any, path: str, word: str) -> None:
    name = service.create(space=SPACE)["name"]
    problem = patched(service, name, 422, space=wrong)
    assert paths_of(problem) == {path}
    assert word in problem["detail"]


def test_all_service_processes_propose_from_the_changed_spec(settings: Settings) -> None:
    with running(settings) as first:
        name = first.create(space={"n": {"type": "int", "low": 0, "high": 100}})["name"]
        asked(first, name)
        with running(settings) as second:
            asked(second, name)
            patched(second, name, space={"n": {"low": 42, "high": 42}})
            assert asked(first, name).assignment["params"] == {"n": 42}


def test_a_proposal_made_for_the_old_spec_is_not_used(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The spec changes between the proposal and the creation of its trial."""
    name = service.create(space={"n": {"type": "int", "low": 0, "high": 100}})["name"]
    original, calls = Proposals.propose, []

    def propose_and_change(self: Proposals, experiment_id: str, number: int) -> Any:
        params = original(self, experiment_id, number)
        calls.append(params)
        if len(calls) == 1:
            patched(service, name, space={"n": {"low": 42, "high": 42}})
        return params

    monkeypatch.setattr(Proposals, "propose", propose_and_change)
    assert asked(service, name).assignment["params"] == {"n": 42}
    assert [one.params == {"n": 42} for one in calls[:2]] == [False, True]  # a third one may be computed ahead by now


def test_after_a_narrowing_the_search_uses_only_the_trials_inside(service: Api) -> None:
    search = {"sampler": "tpe", "seed": 3, "options": {"n_startup_trials": 2}}
    space = {"n": {"type": "int", "low": 0, "high": 1000}}
    name = service.create(space=space, search=search, limits={"max_trials": 99, "parallelism": 99})["name"]
    history = []
    for number, n in enumerate((100, 200, 300, 600, 700, 800)):
        service.post(f"/v1/experiments/{name}/trials", 201, json={"params": {"n": n}})
        ran(service, name, n / 1000)
        history.append(Observation(number, {"n": n}, "completed", (n / 1000,), 1, n / 1000))
    patched(service, name, space={"n": {"high": 500}})
    narrowed = Space.model_validate({"n": {"type": "int", "low": 0, "high": 500}})
    study = Study(Problem(narrowed, ("maximize",)), SamplerSpec.model_validate(search), seed=3)
    assert asked(service, name).assignment["params"] == propose(study, history[:3], 6)


def test_a_parameter_is_removed_when_its_parent_leaves_the_range(service: Api) -> None:
    space = {
        "layers": {"type": "int", "low": 1, "high": 8},
        "skip": {"type": "float", "low": 0, "high": 1, "when": {"layers": {"min": 5}}},
        "wide": {"type": "float", "low": 0, "high": 1, "when": {"layers": {"max": 6}}},
    }
    name = service.create(space=space)["name"]
    shown = patched(service, name, space={"layers": {"high": 6}})
    assert set(shown["spec"]["space"]) == {"layers", "skip", "wide"}
    shown = patched(service, name, space={"layers": {"high": 4}})
    assert set(shown["spec"]["space"]) == {"layers", "wide"}
    patched(service, name, 422, space={"wide": {"when": {"layers": {"max": 7}}}})


def test_a_spec_accepted_before_a_limit_existed_stays_valid(settings: Settings) -> None:
    with running(settings) as service:
        name = service.create(limits={"max_trials": 9, "parallelism": 9})["name"]
    database = Database(settings.database_url)
    with database.write() as session:
        row = session.query(ExperimentRow).one()
        row.spec = row.spec | {
            "search": row.spec["search"] | {"sampler": "tpe", "options": {"n_ei_candidates": 10_001}}
        }
    database.close()
    with running(settings) as service:
        ran(service, name, 0.5)
        assert service.claim("an-agent", 204, wait_seconds=0) is None
        assert [one["name"] for one in service.get("/v1/experiments")["items"]] == [name]
        assert paths_of(patched(service, name, 422, priority=1)) == {"search.options.n_ei_candidates"}
