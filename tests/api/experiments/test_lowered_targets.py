"""A target that is lowered while the experiment runs, and that one of its trials has reached already."""

from typing import Any

import pytest

from tests.api.early_stopping.population import Trainer, a_population, two
from tests.api.early_stopping.population import trials as shown_trials
from tests.api.early_stopping.promotion import PROMOTE
from tests.api.experiments.changed_experiments import asked, patched
from tests.conftest import Api

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]


def lowered(service: Api, name: str, target: float) -> tuple[Any, Any]:
    [objective] = service.get(f"/v1/experiments/{name}")["spec"]["objectives"]
    shown = patched(service, name, objectives=[{**objective, "target": target}])
    return shown["end_reason"], shown["best"]["number"] if shown["best"] else None


@pytest.mark.databases("sqlite", "postgresql")
def test_a_queued_trial_that_has_reached_it_ends_the_experiment(service: Api) -> None:
    name = service.create()["name"]
    held = asked(service, name)
    held.report(accuracy=0.9)
    held.fail("lost", "the node is gone")
    assert held.shown()["status"] == "queued"
    assert lowered(service, name, 0.8) == ("target_reached", 0)


def test_a_waiting_member_of_a_population_that_has_reached_it_ends_the_experiment(service: Api) -> None:
    name = service.create(**a_population(limits={"max_trials": 3, "parallelism": 1}))["name"]
    Trainer().train_all(service, name, parallelism=1, most=2)
    assert [one["status"] for one in shown_trials(service, name)] == ["paused", "paused"]
    assert lowered(service, name, 1.5) == ("target_reached", 0)


def test_the_trial_that_has_its_donors_value_has_reached_nothing(service: Api) -> None:
    name = service.create(**a_population(limits={"max_trials": 2, "parallelism": 2}))["name"]
    heir, donor = two(service, name)
    for step in (1, 2):
        heir.report(loss=0.9, checkpoint=f"/heir-{step}")
        donor.report(loss=0.5, checkpoint=f"/donor-{step}")
    heir.finish("stopped")
    donor.finish("stopped")
    assert [one["value"] for one in shown_trials(service, name)] == [0.5, 0.5]
    assert lowered(service, name, 0.6) == ("target_reached", 1)
    assert "trial 1: loss 0.5" in service.get(f"/v1/experiments/{name}")["end_detail"]


def test_a_trial_that_waits_for_a_promotion_has_lost(service: Api) -> None:
    name = service.create(early_stopping=PROMOTE)["name"]
    for accuracy in (0.9, 0.8):
        held = asked(service, name)
        held.report(accuracy=accuracy)
        held.finish("stopped")
        assert held.shown()["status"] == "paused"
    assert lowered(service, name, 0.7) == (None, None)


def test_the_winner_of_a_search_that_has_reached_it_is_confirmed(service: Api) -> None:
    limits = {"max_trials": 6, "parallelism": 3}
    name = service.create(confirm={"top": 1, "seeds": 2}, limits=limits)["name"]
    held = asked(service, name)
    held.report(accuracy=0.9)
    held.finish()
    assert lowered(service, name, 0.8) == ("target_reached", 0)
    confirmations = [asked(service, name) for _ in range(2)]
    assert [one.shown()["confirms"] for one in confirmations] == [0, 0]
    assert lowered(service, name, 0.95) == (None, 0)
    assert asked(service, name).shown()["confirms"] is None
