"""Populations over HTTP, whose trials the tests train."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.conftest import Api, Held, a_spec

RULE = {"rule": "pbt", "interval": 2, "max_step": 6}


SPACE = {
    "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
    "optimizer": {"type": "categorical", "choices": ["sgd", "adam"]},
    "momentum": {"type": "float", "low": 0.0, "high": 0.9, "when": {"optimizer": "sgd"}},
}


def a_population(**changes: Any) -> dict[str, Any]:
    """Four trials of six steps, two at a time."""
    spec = a_spec(
        objectives=[{"metric": "loss", "direction": "minimize"}],
        early_stopping=RULE,
        space=SPACE,
        limits={"max_trials": 4, "parallelism": 2},
        checkpoints={"keep": 1},
    )
    return spec | changes


@dataclass
class Run:
    """One attempt, as its training function sees it."""

    number: int
    attempt: int
    params: dict[str, Any]
    resume: dict[str, Any] | None
    reported: list[int] = field(default_factory=list)


def loss_of(number: int, step: int) -> float:
    """Trial 0 is the best at every step, the last one the worst."""
    return 1 + number - step / 100


def uri_of(given: dict[str, Any], step: int) -> str:
    return f"/checkpoints/{given['number']}-{given['attempt']}-{step}"


def uri_in_run(given: dict[str, Any], step: int) -> str:
    """A checkpoint URI as the slots of an agent report it."""
    return f"/checkpoints/{given['run_name']}/{step}"


@dataclass
class Trainer:
    """Trains the trials that it gets, step by step from the assignment's checkpoint, and saves at each step."""

    loss: Callable[[int, int], float] = loss_of
    steps: int = 6
    saves: Callable[[int, int], bool] = lambda _number, _step: True
    uri: Callable[[dict[str, Any], int], str] = uri_of
    runs: list[Run] = field(default_factory=list)

    def train(self, held: Held) -> Run:
        given = held.assignment
        run = Run(given["number"], given["attempt"], given["params"], given["resume"])
        self.runs.append(run)
        assert given["config"] == given["params"]
        for step in range(run.resume["step"] + 1 if run.resume else 1, self.steps + 1):
            saved = self.uri(given, step) if self.saves(run.number, step) else None
            run.reported.append(step)
            if held.report(loss=self.loss(run.number, step), checkpoint=saved)["decision"] == "stop":
                held.finish("stopped")
                return run
        held.finish()
        return run

    def train_all(self, service: Api, name: str, parallelism: int = 2, most: int = 1000) -> int:
        """Ask and train in rounds until no trial is left, for at most `most` rounds; returns the number of rounds."""
        for count in range(most):
            given = [service.ask(name) for _ in range(parallelism)] if is_running(service, name) else []
            if not any(given):
                return count
            for held in given:
                if held is not None:
                    self.train(held)
        return most

    def train_next(self, service: Api, name: str) -> dict[str, Any]:
        """Train one trial; returns its assignment."""
        held = service.ask(name)
        assert held
        self.train(held)
        return held.assignment

    def of(self, number: int) -> list[Run]:
        return [run for run in self.runs if run.number == number]


def is_running(service: Api, name: str) -> bool:
    return bool(service.get(f"/v1/experiments/{name}")["status"] == "running")


def two(service: Api, name: str) -> tuple[Held, Held]:
    first, second = service.ask(name), service.ask(name)
    assert first
    assert second
    return first, second


def trials(service: Api, name: str) -> list[dict[str, Any]]:
    found = service.get(f"/v1/experiments/{name}/trials")["items"]
    return [service.get(f"/v1/trials/{trial['id']}") for trial in found]


def decisions(service: Api, trial: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.get(f"/v1/trials/{trial['id']}/decisions")["items"]
    return found
