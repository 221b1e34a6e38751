"""The sampler that `auto` chooses for an experiment with a large budget, and when it chooses another one."""

import re
from typing import Any

import pytest
from sqlalchemy import select, update

from service.store.tables import EventRow, ExperimentRow
from tests.api.early_stopping.promotion import patched
from tests.conftest import Api
from tests.store.recorded_statements import recorded

SEARCH = {"sampler": "auto", "seed": 7}
NUMBERS = {f"n{number}": {"type": "int", "low": 0, "high": 100} for number in range(5)}
MANY = {"max_trials": 5000, "parallelism": 4}
LONG = 1e6
CUT_SHORT = "5000 trials that limits.max_seconds may cut short"


def created(service: Api, **parts: Any) -> dict[str, Any]:
    return service.create(**{"space": NUMBERS, "search": SEARCH, "limits": MANY} | parts)


def chosen(service: Api, name: str) -> list[tuple[str, str]]:
    samplers = [one["data"]["sampler"] for one in service.events(name) if one["kind"] == "experiment.search_chosen"]
    return [(one["name"], one["why"]) for one in samplers]


@pytest.mark.parametrize(
    ("parts", "limit"),
    [
        ({"limits": MANY | {"max_seconds": LONG}}, "limits.max_seconds"),
        ({"limits": MANY | {"no_improvement": {"trials": 50}}}, "limits.no_improvement"),
        ({"objectives": [{"metric": "loss", "direction": "minimize", "target": 0.1}]}, "objectives.0.target"),
        (
            {
                "limits": MANY | {"max_gpu_hours": LONG},
                "trainer": {"kind": "torch", "entrypoint": "train:train", "scaling": {"use_gpu": True}},
            },
            "limits.max_gpu_hours",
        ),
    ],
)
def test_a_large_budget_counts_as_unknown_if_another_limit_may_end_the_search(
    service: Api, parts: dict[str, Any], limit: str
) -> None:
    body = {"space": NUMBERS, "search": SEARCH, "limits": MANY}
    seen = service.post("/v1/spaces/preview", 200, json=body | parts | {"n": 0})["sampler"]
    assert seen["name"] == "gp"
    assert f"5000 trials that {limit} may cut short" in seen["why"]
    seen = service.post("/v1/spaces/preview", 200, json=body | {"n": 0})["sampler"]
    assert seen["name"] == "cmaes"
    assert "may cut short" not in seen["why"]


@pytest.mark.slow
def test_a_limit_that_is_added_to_a_search_changes_the_choice_with_an_event(service: Api) -> None:
    name = created(service)["name"]
    patched(service, name, limits={"max_seconds": LONG})
    (first, _), (then, why) = chosen(service, name)
    assert (first, then) == ("cmaes", "gp")
    assert CUT_SHORT in why


@pytest.mark.slow
def test_an_experiment_of_an_earlier_version_shows_that_the_sampler_is_another_one(service: Api) -> None:
    name = created(service, limits=MANY | {"max_seconds": LONG})["name"]
    with service.app.state.context.database.write() as session:
        event = session.scalars(select(EventRow).where(EventRow.kind == "experiment.search_chosen")).one()
        event.data = event.data | {"sampler": {"name": "cmaes", "why": "a budget of 5000 trials lets cmaes learn"}}
        session.execute(update(ExperimentRow).values(announced_sampler=None))
    for _ in range(2):
        assert service.ask(name)
    assert [one for one, _ in chosen(service, name)] == ["cmaes", "gp"]
    kinds = [one["kind"] for one in service.events(name)]
    assert kinds.index("trial.created") == len(kinds) - 1 - kinds[::-1].index("experiment.search_chosen") + 1


@pytest.mark.slow
def test_a_new_trial_looks_for_the_announced_sampler_in_no_event(service: Api) -> None:
    """All events could have to be read, in a transaction for which reports wait."""
    name = created(service)["name"]
    with recorded(service.app.state.context.database.engine) as statements:
        assert service.ask(name)
    assert not [one for one, _ in statements if re.search(r"from events", one, re.IGNORECASE)]
