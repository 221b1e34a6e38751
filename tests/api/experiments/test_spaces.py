"""The preview of a space, before any trial runs."""

from typing import Any

import pytest

from tests.conftest import Api, a_spec

OPTIMIZER = {"type": "categorical", "choices": ["sgd", "adamw"]}
LAYERS = {"type": "int", "low": 1, "high": 3}
LR = {"type": "float", "low": 1e-4, "high": 1.0, "log": True}
MOMENTUM = {"type": "float", "low": 0, "high": 0.5, "step": 0.25, "when": {"optimizer": "sgd"}}
NESTEROV = {"type": "categorical", "choices": [True, False], "when": {"momentum": {"min": 0.1}, "layers": [2, 3]}}
SPACE = {"optimizer": OPTIMIZER, "layers": LAYERS, "momentum": MOMENTUM, "nesterov": NESTEROV}


def tried(service: Api, experiment: str) -> dict[str, Any]:
    held = service.ask(experiment)
    assert held is not None
    params: dict[str, Any] = held.assignment["params"]
    return params


def previewed(service: Api, **body: Any) -> Any:
    return service.post("/v1/spaces/preview", 200, json=body)


def test_a_finite_space_is_counted_and_sampled(service: Api) -> None:
    seen = previewed(service, space=SPACE, search={"sampler": "brute_force"}, n=100)
    # sgd: 3 with momentum 0; with another momentum 2 of one layer, and 2 * 2 * 2 of two or three layers
    assert seen["size"] == 3 + (3 + 2 + 2 * 2 * 2)
    assert len(seen["samples"]) == len({repr(one) for one in seen["samples"]}) == 16
    assert seen["dead"] == []
    assert seen["sampler"] == {"name": "brute_force", "options": {"avoid_premature_stop": False}, "why": None}


@pytest.mark.slow
def test_samples_are_those_of_an_experiment_with_the_same_seed(service: Api) -> None:
    search = {"sampler": "qmc", "seed": 11, "options": {"scramble": True}}
    seen = previewed(service, space={"lr": LR}, search=search, n=3)
    name = service.create(space={"lr": LR}, search=search, limits={"max_trials": 9, "parallelism": 3})["name"]
    assert seen["samples"] == [tried(service, name) for _ in range(3)]
    assert seen["size"] is None


def test_forbidden_combinations_are_not_sampled_and_dead_branches_are_named(service: Api) -> None:
    forbid = [{"layers": {"min": 2}}, {"optimizer": "adamw", "layers": [2, 3]}]
    seen = previewed(service, space={**SPACE, "lr": LR}, forbid=forbid, n=50)
    assert all(one["layers"] == 1 for one in seen["samples"])
    assert seen["dead"] == [
        {"path": "space.layers", "message": "is never from 2 to 3"},
        {"path": "space.nesterov", "message": "can never exist"},
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "name", "reason"),
    [
        (
            {"space": {"layers": LAYERS}, "limits": {"max_trials": 100}},
            "brute_force",
            "the space has 3 configurations: a budget of 100 trials can try them all",
        ),
        (
            {"space": SPACE, "limits": {"max_trials": 100}},
            "gp",
            "the search ends when all 16 configurations of the space have been tried",
        ),
        ({"space": {"lr": LR}, "limits": {"max_trials": 50}}, "gp", "a parallelism of 1 is small enough for gp"),
        (
            {"space": {**SPACE, "lr": LR}, "limits": {"max_trials": 9}},
            "gp",
            "a parallelism of 1 is small enough for gp",
        ),
        (
            {"space": {**SPACE, "lr": LR}, "limits": {"max_trials": 9}, "early_stopping": {"rule": "median"}},
            "tpe",
            "the space has conditions",
        ),
    ],
)
def test_auto_explains_its_choice(service: Api, body: dict[str, Any], name: str, reason: str) -> None:
    sampler = previewed(service, **body, search={"sampler": "auto"}, n=0)["sampler"]
    assert sampler["name"] == name
    assert reason in sampler["why"]
    assert service.create(**body, search={"sampler": "auto"})["sampler"] == sampler


def test_every_mistake_of_a_preview_is_reported(service: Api) -> None:
    wrong = {
        "space": {"lr": {**LR, "low": 2}},
        "forbid": [{"lr": 1}],
        "n": 1001,
        "search": {"sampler": "qmc", "options": {"x": 1}},
    }
    errors = service.post("/v1/spaces/preview", 422, json=wrong)["errors"]
    assert {error["path"] for error in errors} == {"n", "space.lr.low", "search.options.x"}
    assert service.post("/v1/spaces/preview", 422, json=[1])["errors"][0]["path"] == ""
    assert {error["path"] for error in service.post("/v1/spaces/preview", 422, json={"n": 1})["errors"]} == {"space"}


@pytest.mark.parametrize(
    ("parameter", "where", "what"),
    [
        ({"low": 1e-5, "high": 1.0000000000000004e-5, "log": True}, "log", "must be false: a logarithmic scale does"),
        ({"low": 1e17, "high": 1e17 + 160, "step": 1}, "step", "is too small: floats do not distinguish steps of 1 at"),
        ({"low": -1e17, "high": -1e17 + 160, "step": 1}, "step", "is too small: floats do not distinguish steps of 1"),
    ],
)
def test_a_range_or_step_that_floats_do_not_distinguish_is_refused(
    service: Api, parameter: dict[str, Any], where: str, what: str
) -> None:
    wrong = {"x": {"type": "float", **parameter}}
    for path, body in (("experiments", a_spec(space=wrong)), ("spaces/preview", {"space": wrong})):
        [error] = service.post(f"/v1/{path}", 422, json=body)["errors"]
        assert (error["path"], error["message"].startswith(what)) == (f"space.x.{where}", True)


def test_a_complete_spec_can_be_previewed(service: Api) -> None:
    yaml = "name: digits\nspace: {x: {type: int, low: 1, high: 2}}\nobjectives: [{metric: loss, direction: minimize}]\n"
    headers = {"Content-Type": "application/yaml"}
    assert service.post("/v1/spaces/preview", 200, content=yaml, headers=headers)["size"] == 2


@pytest.mark.slow
def test_an_experiment_tries_no_forbidden_combination(service: Api) -> None:
    forbid = [{"optimizer": "sgd", "lr": {"min": 0.01}}]
    space = {"lr": LR, "optimizer": OPTIMIZER}
    wrong = a_spec(space=space, forbid=forbid, enqueue=[{"lr": 0.5, "optimizer": "sgd"}])
    assert 'enqueue.0: is forbidden: optimizer is "sgd"' in service.post("/v1/experiments", 422, json=wrong)["detail"]
    name = service.create(space=space, forbid=forbid, limits={"max_trials": 40, "parallelism": 40})["name"]
    for _ in range(40):
        params = tried(service, name)
        assert params["optimizer"] == "adamw" or params["lr"] < 0.01


ALONE = "judges trials by accuracy alone: trials that are among the best by seconds may be stopped"
FEASIBLE = "judges trials by accuracy and not by constraints: the only feasible trials may be stopped"
UNSCORED = "is not used with several objectives: a trial that early stopping ends ranks after completed ones"
TPE = {"search": {"sampler": "tpe"}, "limits": {"max_trials": 9, "parallelism": 2}}
SECONDS = {"metric": "seconds", "direction": "minimize"}
CONSTRAINED = {"constraints": [{"metric": "memory", "max": 4}]}
TWO = {"objectives": [{"metric": "accuracy", "direction": "maximize"}, SECONDS]}


@pytest.mark.parametrize("rule", ["asha", "none", "auto"])
@pytest.mark.parametrize(
    ("parts", "warned"),
    [
        (CONSTRAINED, [("early_stopping.rule", FEASIBLE)]),
        (TWO, [("early_stopping.metric", ALONE)]),
        (CONSTRAINED | TWO, [("early_stopping.metric", ALONE), ("early_stopping.rule", FEASIBLE)]),
        (TWO | TPE, [("search.curve_score", UNSCORED), ("early_stopping.metric", ALONE)]),
        (TPE, []),
    ],
)
def test_the_answer_to_a_spec_says_what_early_stopping_disregards(
    service: Api, rule: str, parts: dict[str, Any], warned: list[tuple[str, str]]
) -> None:
    metric = {"metric": "accuracy"} if rule == "asha" else {}
    found = service.create(**{"early_stopping": {"rule": rule} | metric} | parts)["warnings"]
    assert [(one["path"], one["message"]) for one in found] == (warned if rule == "asha" else [])


@pytest.mark.parametrize(
    ("rule", "field", "warned"),
    [
        ({"rule": "asha", "min_step": 5, "max_step": 5}, "max_step", "is 5, and the first rung is 5"),
        ({"rule": "asha", "min_early_stopping_rate": 3, "max_step": 20}, "max_step", "is 20, and the first rung is 27"),
        ({"rule": "hyperband", "max_step": 1}, "max_step", "is 1, and the first rung is 1"),
        ({"rule": "hyperband", "max_step": 9, "grace_steps": 9}, "grace_steps", "is not below the last step, 9"),
        (
            {"rule": "patient", "patience": 1, "wrapped_rule": {"rule": "asha", "min_step": 4, "max_step": 3}},
            "wrapped_rule.max_step",
            "is 3, and the first rung is 4",
        ),
        ({"rule": "asha", "max_step": 9}, None, None),
        ({"rule": "asha", "min_step": 9}, None, None),
        ({"rule": "hyperband", "max_step": 9, "grace_steps": 8}, None, None),
    ],
)
def test_the_answer_to_a_spec_warns_of_a_rule_that_can_stop_no_trial(
    service: Api, rule: dict[str, Any], field: str | None, warned: str | None
) -> None:
    found = service.create(early_stopping=rule)["warnings"]
    expected = [] if field is None else [(f"early_stopping.{field}", f"{warned}: no trial is stopped")]
    assert [(one["path"], one["message"]) for one in found] == expected


def test_the_answer_to_a_spec_warns_of_what_its_sampler_does_not_learn_from(service: Api) -> None:
    spec = {"space": SPACE | {"lr": LR}, "search": {"sampler": "nsga2"}, "early_stopping": {"rule": "asha"}}
    warned = [
        {
            "path": "search.sampler",
            "message": "nsga2 learns nothing about parameters under conditions, and draws momentum, nesterov at "
            "random; tpe learns about them",
        },
        {
            "path": "search.sampler",
            "message": "nsga2 learns from completed trials only, not from those that early stopping ends; tpe does",
        },
    ]
    created = service.create(**spec)
    assert created["warnings"] == warned
    assert service.get(f"/v1/experiments/{created['name']}")["warnings"] == warned
    assert previewed(service, **spec)["warnings"] == warned
    assert tried(service, created["name"])
    assert service.create(**spec | {"search": {}})["warnings"] == []


@pytest.mark.parametrize(
    "part",
    [
        {"checkpoints": {"keep_best_trials": 2}},
        {"trainer": {"entrypoint": "train:train", "runtime_env": {"pip": {"from_package": True}}}},
        {"trainer": {"entrypoint": "train:train", "datasets": {"d": {"read": "parquet", "paths": ["data/d.parquet"]}}}},
    ],
    ids=["no trainer", "requirements of the package", "data in the package"],
)
def test_a_preview_needs_no_code(service: Api, part: dict[str, Any]) -> None:
    space = {"lr": {"type": "float", "low": 0, "high": 1}}
    assert len(previewed(service, space=space, n=1, **part)["samples"]) == 1


@pytest.mark.parametrize(
    ("parts", "is_warned"),
    [
        ({"limits": {"max_trials": 501}}, True),
        ({"limits": {"max_trials": 500}}, False),
        ({"limits": {"max_trials": 509}, "confirm": {"top": 3, "seeds": 3}}, False),
        ({"limits": {"max_trials": 501}, "early_stopping": {"rule": "asha"}}, False),
        ({"limits": {"max_trials": 501}, "early_stopping": {"rule": "asha"}, **CONSTRAINED}, True),
        ({"limits": {"max_trials": 501}, "search": {"sampler": "auto"}}, False),
    ],
)
def test_the_answer_to_a_spec_warns_where_proposals_of_gp_will_take_seconds(
    service: Api, parts: dict[str, Any], is_warned: bool
) -> None:
    spec = {"space": {"lr": LR}, "search": {"sampler": "gp"}} | parts
    slow = "a proposal of gp takes about a second of processor time after 500 trials and four after 1000"
    for answer in (service.create(**spec), previewed(service, **spec, n=0)):
        found = [one["path"] for one in answer["warnings"] if one["message"].startswith(slow)]
        assert found == (["search.sampler"] if is_warned else [])
