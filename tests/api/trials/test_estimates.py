"""A trial shows what the sampler's model expected of it."""

from typing import Any

import pytest

from tests.conftest import Api

pytestmark = pytest.mark.slow

SPACE = {name: {"type": "float", "low": 0, "high": 1} for name in ("lr", "momentum")}


def completed_trials(service: Api, search: dict[str, Any], count: int) -> list[dict[str, Any]]:
    name = service.create(space=SPACE, search=search | {"seed": 1}, limits={"max_trials": 40})["name"]
    shown = []
    for _ in range(count):
        held = service.ask(name)
        assert held
        held.report(accuracy=-((held.assignment["params"]["lr"] - 0.3) ** 2))
        held.finish("completed")
        shown.append(held.shown())
    return shown


def test_a_trial_of_gp_shows_the_value_that_was_expected(service: Api) -> None:
    first, *_, newest = completed_trials(service, {"sampler": "gp"}, 10)
    assert first["estimate"] is None
    estimate = newest["estimate"]
    assert estimate["model"] == "gp"
    assert estimate["low"] <= estimate["value"] <= estimate["high"]
    assert abs(estimate["value"] - newest["value"]) < 0.1
    assert 0 <= estimate["improvement_probability"] <= 1
    assert (estimate["good_probability"], estimate["good_share"]) == (None, None)


def test_a_trial_of_tpe_shows_how_likely_it_was_to_be_good(service: Api) -> None:
    *_, newest = completed_trials(service, {"sampler": "tpe", "options": {"n_startup_trials": 4}}, 10)
    estimate = newest["estimate"]
    assert (estimate["model"], estimate["value"]) == ("tpe", None)
    assert 0 < estimate["good_share"] < estimate["good_probability"] < 1


def test_a_users_trial_has_no_estimate(service: Api) -> None:
    name = service.create(space=SPACE, search={"sampler": "gp"}, limits={"max_trials": 40})["name"]
    trial = service.post(f"/v1/experiments/{name}/trials", 201, json={"params": {"lr": 0.5, "momentum": 0.5}})
    assert service.get(f"/v1/trials/{trial['id']}")["estimate"] is None
