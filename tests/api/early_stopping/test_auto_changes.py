"""What changes the choice of `early_stopping: auto`: a longer training, and changes by the user."""

import pytest

from tests.api.early_stopping.chosen_rules import LIMITS, STEPS, STOPPING, chosen, created, ran, rule
from tests.api.early_stopping.promotion import experiment, given, patched, trials
from tests.conftest import Api

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]


def test_a_much_longer_trial_changes_the_choice(service: Api) -> None:
    name = created(service)["name"]
    ran(given(service, name), steps=1)
    assert rule(service, name) == {"rule": "none"}
    ran(given(service, name), steps=2)
    assert rule(service, name) == {"rule": "none"}
    ran(given(service, name), steps=STEPS)
    assert rule(service, name) == STOPPING
    assert [one["sampler"]["name"] for one in chosen(service, name)] == ["gp", "gp", "gp"]


def test_changed_limits_change_the_choice(service: Api) -> None:
    name = created(service, limits=LIMITS | {"max_trials": 9})["name"]
    ran(given(service, name))
    patched(service, name, tags={"team": "vision"})
    assert len(chosen(service, name)) == 1
    patched(service, name, limits={"max_trials": 40})
    assert rule(service, name) == STOPPING
    patched(service, name, limits={"max_trials": 9})
    assert rule(service, name) == {"rule": "none"}


@pytest.mark.databases("sqlite", "postgresql")
@pytest.mark.parametrize("saves_every", [1, None], ids=["promoting", "stopping"])
def test_a_raised_parallelism_keeps_the_rule_that_stops_trials(service: Api, saves_every: int | None) -> None:
    """Whole trials under a rule are those that it let through: their ranks, and their number, tell nothing new."""
    name = created(service)["name"]
    ran(given(service, name), saves_every=saves_every, value=0.5)
    wanted = rule(service, name)
    behind = given(service, name)
    left = behind.report(accuracy=0.1, checkpoint="/1" if saves_every else None)
    if left["decision"] == "stop":
        behind.finish("stopped")
    before = [(one["status"], one["number"]) for one in trials(service, name)]
    patched(service, name, limits={"parallelism": 8})
    assert rule(service, name) == wanted
    assert [(one["status"], one["number"]) for one in trials(service, name)] == before
    ran(given(service, name), saves_every=saves_every, value=0.9)
    assert rule(service, name) == wanted
    assert "so far" not in experiment(service, name)["early_stopping"]["why"]


@pytest.mark.databases("sqlite", "postgresql")
def test_a_raised_parallelism_counts_the_trials_that_ran_to_their_ends(service: Api) -> None:
    """One that makes few reports was enough to choose `none`, so that nothing was stopped."""
    name = created(service)["name"]
    for value in (0.1, 0.2, 0.3, 0.4):
        ran(given(service, name), steps=2, value=value)
    assert rule(service, name) == {"rule": "none"}
    patched(service, name, limits={"parallelism": 8})
    assert rule(service, name) == {"rule": "none"}


def test_a_changed_rule_is_the_users_until_it_is_handed_back(service: Api) -> None:
    name = created(service)["name"]
    ran(given(service, name))
    patched(service, name, early_stopping={"reduction_factor": 2})
    shown = experiment(service, name)
    assert shown["early_stopping"]["why"] is None
    assert shown["early_stopping"]["options"]["reduction_factor"] == 2
    ran(given(service, name), steps=10 * STEPS, value=0.9)
    assert rule(service, name) == STOPPING
    patched(service, name, early_stopping={"rule": "auto"})
    assert rule(service, name)["max_step"] == 10 * STEPS
    assert "trial 1 made 90 reports" in experiment(service, name)["early_stopping"]["why"]
