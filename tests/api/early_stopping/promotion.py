"""Experiments with promotion over HTTP, whose trials the tests run."""

from collections.abc import Sequence
from typing import Any

from search.early_stopping.rules.hyperband import Hyperband
from tests.conftest import Api, Held

PROMOTE = {"rule": "asha", "min_step": 1, "reduction_factor": 3, "promote": True}


IN_BRACKETS = PROMOTE | {"rule": "hyperband", "reduction_factor": 2, "max_step": 9}


STEPS = 9


GOOD_FIRST = [0.9, 0.1, 0.2, 0.8, 0.3, 0.4, 0.7, 0.5, 0.6]


def started(service: Api, *, max_trials: int = 9, parallelism: int = 10, **changes: Any) -> str:
    limits = {"max_trials": max_trials, "parallelism": parallelism}
    name: str = service.create(**{"early_stopping": PROMOTE, "limits": limits} | changes)["name"]
    return name


def asked(service: Api, name: str) -> Held | None:
    response = service.http.post(f"/v1/experiments/{name}/ask")
    return Held(service, response.json()) if response.status_code == 200 else None


def given(service: Api, name: str) -> Held:
    held = asked(service, name)
    assert held
    return held


def resumed_at(held: Held) -> int:
    resume = held.assignment["resume"]
    return int(resume["step"]) if resume else 0


def report(held: Held, value: float) -> str:
    """Report the next step, with a checkpoint."""
    step = resumed_at(held) + held.sequence + 1
    return str(held.report(accuracy=value, checkpoint=f"/{held.trial}/{step}")["decision"])


def train(held: Held, value: float, last_step: int = STEPS) -> str:
    """Report from the checkpoint's step on until a stop or the last step; returns the trial's new status."""
    for step in range(resumed_at(held) + 1, last_step + 1):
        if report(held, value) == "stop" and step < last_step:
            return str(held.finish("stopped")["status"])
    return str(held.finish()["status"])


def run_out(service: Api, name: str, values: Sequence[float]) -> list[tuple[int, int]]:
    """Run trials one at a time until none is left; returns each one's number and first step."""
    ran = []
    while (held := asked(service, name)) is not None:
        ran.append((held.assignment["number"], resumed_at(held)))
        train(held, values[held.assignment["number"]])
    return ran


def bracket_of(number: int) -> int:
    return Hyperband.model_validate(IN_BRACKETS).bracket_of(number)


def experiment(service: Api, name: str) -> dict[str, Any]:
    found: dict[str, Any] = service.get(f"/v1/experiments/{name}")
    return found


def trials(service: Api, name: str, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.get(f"/v1/experiments/{name}/trials{query}")["items"]
    return found


def statuses(service: Api, name: str) -> list[str]:
    return [trial["status"] for trial in trials(service, name)]


def decisions(service: Api, name: str, *kinds: str) -> list[dict[str, Any]]:
    numbers = {trial["id"]: trial["number"] for trial in trials(service, name)}
    return [
        {"number": numbers[event["trial"]], **event["data"]}
        for event in service.events(name)
        if event["kind"] == "decision" and event["data"]["decision"] in kinds
    ]


def paused_ones(service: Api, values: Sequence[float], **changes: Any) -> str:
    """An experiment that may have more trials, whose trials so far are all paused at the first rung."""
    name = started(service, **{"early_stopping": PROMOTE | {"reduction_factor": 9}} | changes)
    for value in values:
        assert train(given(service, name), value) == "paused"
    return name


def patched(service: Api, name: str, **changes: Any) -> None:
    service.http.patch(f"/v1/experiments/{name}", json=changes).raise_for_status()


def stopped(service: Api, held: Held) -> None:
    report(held, 0.9)
    service.post(f"/v1/trials/{held.trial}/stop")
    held.finish("stopped")


FACTS = ("milestone", "value", "cutoff", "compared_count", "compared_with", "reason")


def facts(decision: dict[str, Any]) -> tuple[Any, ...]:
    return (decision["number"], *(decision[name] for name in FACTS))
