"""The list of experiments shows each as its own page does, with a constant number of queries."""

import json
import threading
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tests.conftest import Api

TORCH = {"kind": "torch", "entrypoint": "train:train_fn"}
KINDS: dict[str, dict[str, Any]] = {
    "minimizes": {"objectives": [{"metric": "accuracy", "direction": "minimize"}]},
    "maximizes": {"objectives": [{"metric": "accuracy", "direction": "maximize"}]},
    "constrained": {"constraints": [{"metric": "size", "max": 2}]},
    "several": {"objectives": [{"metric": name, "direction": "maximize"} for name in ("accuracy", "size")]},
}


def train(service: Api, name: str) -> None:
    """Trials 1 and 3 have the best value of all; of the feasible ones, trials 0 and 2 do."""
    for number, outcome in enumerate(("completed", "stopped", "completed", "stopped", "completed")):
        held = service.ask(name)
        assert held
        best = number in (1, 3)
        for step in (1, 2):
            held.report(accuracy=0.9 if best else 0.5, size=3 if best else 1, checkpoint=f"/{number}/{step}")
        held.finish(outcome)


def fail(service: Api, name: str) -> None:
    held = service.ask(name)
    assert held
    held.finish("failed", error={"kind": "user_error", "message": "a mistake", "traceback": "where it was made"})


@pytest.fixture
def experiments(service: Api) -> list[str]:
    """An experiment of each kind."""
    for name, changes in KINDS.items():
        service.create(name=name, **changes)
        train(service, name)
    service.create(name="taught", search={"sampler": "tpe", "warm_start": ["maximizes"]})
    service.create(name="failed", limits={"max_trials": 1})
    fail(service, "failed")
    service.create(name="waiting", trainer=TORCH)
    service.create(name="minimizes-too", **KINDS["minimizes"])
    train(service, "minimizes-too")
    return [*KINDS, "taught", "failed", "waiting", "minimizes-too"]


@pytest.mark.slow
def test_the_list_shows_each_experiment_as_its_own_page_does(service: Api, experiments: list[str]) -> None:
    listed = service.get("/v1/experiments")["items"]
    alone = [service.get(f"/v1/experiments/{name}") for name in reversed(experiments)]
    assert json.dumps(listed) == json.dumps(alone)
    shown = {one["name"]: one for one in listed}
    best = {name: one["best"]["number"] if one["best"] else None for name, one in shown.items()}
    assert best == {
        "minimizes": 0,
        "maximizes": 1,
        "constrained": 0,
        "several": None,
        "taught": None,
        "failed": None,
        "waiting": None,
        "minimizes-too": 0,
    }
    assert shown["maximizes"]["best"]["checkpoint"]["uri"] == "/1/2"
    assert shown["maximizes"]["counts"] == shown["constrained"]["counts"]
    assert (shown["maximizes"]["counts"]["completed"], shown["maximizes"]["counts"]["stopped"]) == (3, 2)
    assert (shown["failed"]["status"], shown["failed"]["traceback"]) == ("failed", "where it was made")
    assert shown["taught"]["warm_start"][0]["experiment"] == "maximizes"
    assert shown["waiting"]["waiting_for"].startswith("an agent")


def test_the_list_shows_every_change_immediately(service: Api) -> None:
    name = service.create()["name"]
    counts = [service.get("/v1/experiments")["items"][0]["counts"]]
    held = service.ask(name)
    assert held
    counts.append(service.get("/v1/experiments")["items"][0]["counts"])
    held.report(accuracy=0.5)
    held.finish("completed")
    counts.append(service.get("/v1/experiments")["items"][0]["counts"])
    assert [(one["running"], one["completed"]) for one in counts] == [(0, 0), (1, 0), (0, 1)]


@pytest.mark.slow
def test_the_number_of_queries_does_not_grow_with_the_list(service: Api, experiments: list[str]) -> None:
    engine: Engine = service.app.state.context.database.engine
    queries: list[str] = []

    def record(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not threading.current_thread().name.startswith(("loop-", "paceline-ahead")):
            queries.append(statement)

    event.listen(engine, "before_cursor_execute", record)

    def count() -> int:
        queries.clear()
        assert len(service.get("/v1/experiments?limit=500")["items"]) == len(experiments)
        return len(queries)

    first = count()
    for _ in range(3):
        experiments += [service.create(**changes)["name"] for changes in (*KINDS.values(), {"trainer": TORCH})]
    assert count() <= first


@pytest.mark.parametrize("name", ["team", "ü", 'a"b', "a\\b", "", "a:b", "a.b", "$"])
def test_experiments_are_found_by_any_tag(service: Api, name: str) -> None:
    service.create(name="with", tags={name: "é:x", "other": "y"})
    service.create(name="without", tags={"other": "é:x"})
    found = service.get("/v1/experiments", params={"tag": f"{name}:é:x"})["items"]
    assert [one["name"] for one in found] == ["with"]
    assert service.get("/v1/experiments", params={"tag": f"{name}:é"})["items"] == []
