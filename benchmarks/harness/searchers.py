"""Paceline, plain Optuna and Ray Tune behind one interface: each proposes trials and decides on their reports."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx
import optuna
from httpx import codes

from benchmarks.harness.problems import Point, Task
from benchmarks.harness.search_port import METRIC, MIN_STEP, REDUCTION_FACTOR, Ask, Trial


@dataclass
class PacelineTrial:
    """`saved`: the trainer's memory of paused trials, the steps by trial id. `tells`: the service learns of it."""

    http: httpx.Client
    given: Mapping[str, Any]
    saved: dict[str, int]
    tells: bool = False
    sequence: int = 0

    @property
    def point(self) -> Point:
        return dict(self.given["params"])

    @property
    def steps_done(self) -> int:
        return self.saved.get(self.given["trial"], 0)

    def report(self, step: int, value: float) -> bool:
        report = {"sequence": self.sequence, "step": step, "metrics": {METRIC: value}}
        if self.tells:
            report["checkpoint"] = f"/{self.given['trial']}/{step}"
        self.sequence += 1
        self.saved[self.given["trial"]] = step
        return bool(self._call("reports", {"reports": [report]})["decision"] == "continue")

    def end(self, value: float | None) -> None:
        self._call("finish", {"outcome": "stopped" if value is None else "completed"})

    def _call(self, what: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.given['lease']['token']}"}
        answer = self.http.post(f"/v1/trials/{self.given['trial']}/{what}", json=body, headers=headers)
        return answer.raise_for_status().json()


def search_with_paceline(
    http: httpx.Client,
    name: str,
    task: Task,
    rule: str | None,
    seed: int,
    *,
    promote: bool = False,
    workers: int = 4,
    **search: Any,
) -> Ask:
    """`search` is a part of the spec's `search`."""
    halving = {"rule": rule, "min_step": MIN_STEP, "reduction_factor": REDUCTION_FACTOR, "max_step": task.steps}
    halving |= {"promote": promote, "extra_count": int(promote)}
    parts = {
        "name": "-".join(map(str, (name, rule, promote, workers, *search.values(), seed))),
        "search": {"sampler": "tpe", "seed": seed, **search},
        "early_stopping": halving if rule else {"rule": "none"},
        "limits": {"max_trials": 100_000, "parallelism": workers},
    }
    return trials_of_paceline(http, task, parts)


def trials_of_paceline(http: httpx.Client, task: Task, parts: Mapping[str, Any], *, saves: bool = False) -> Ask:
    """The trials of a new experiment with these parts of a spec. `saves`: its reports have checkpoints."""
    objectives = [{"metric": METRIC, "direction": "minimize"}]
    spec = {"space": task.space, "objectives": objectives, "trainer": {"kind": "external"}, **parts}
    http.post("/v1/experiments", json=spec).raise_for_status()
    saved: dict[str, int] = {}

    def ask() -> PacelineTrial:
        answer = http.post(f"/v1/experiments/{spec['name']}/ask").raise_for_status()
        if answer.status_code == codes.NO_CONTENT:
            raise RuntimeError(f"{spec['name']} has no trial to give: its limits.max_trials is too low for the time")
        return PacelineTrial(http, answer.json(), saved, saves)

    return ask


@dataclass
class OptunaTrial:
    study: optuna.Study
    trial: optuna.Trial
    steps_done: int = 0

    @property
    def point(self) -> Point:
        return self.trial.params

    def report(self, step: int, value: float) -> bool:
        self.trial.report(value, step)
        return not self.trial.should_prune()

    def end(self, value: float | None) -> None:
        pruned = optuna.trial.TrialState.PRUNED
        self.study.tell(self.trial, value) if value is not None else self.study.tell(self.trial, state=pruned)


def search_with_optuna(task: Task, rule: str | None, seed: int) -> Ask:
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed), pruner=_pruner(task, rule))
    distributions = distributions_of(task)
    return lambda: OptunaTrial(study, study.ask(distributions))


def distributions_of(task: Task) -> dict[str, optuna.distributions.BaseDistribution]:
    return {name: _distribution(**parameter) for name, parameter in task.space.items()}


def _pruner(task: Task, rule: str | None) -> optuna.pruners.BasePruner:
    if rule == "hyperband":
        return optuna.pruners.HyperbandPruner(MIN_STEP, task.steps, REDUCTION_FACTOR)
    return optuna.pruners.SuccessiveHalvingPruner(MIN_STEP, REDUCTION_FACTOR) if rule else optuna.pruners.NopPruner()


def _distribution(type: str, **options: Any) -> optuna.distributions.BaseDistribution:  # noqa: A002 - as a spec says
    kind = optuna.distributions.IntDistribution if type == "int" else optuna.distributions.FloatDistribution
    return kind(**options)


@dataclass
class RayTuneTrial:
    search: Any
    scheduler: Any
    number: str
    point: Point
    steps_done: int = 0
    last: dict[str, Any] = field(default_factory=dict)

    def report(self, step: int, value: float) -> bool:
        self.last = {METRIC: value, "training_iteration": step}
        self.search.on_trial_result(self.number, self.last)
        answer = self.scheduler.on_trial_result(None, SimpleNamespace(trial_id=self.number), self.last)
        return bool(answer == self.scheduler.CONTINUE)

    def end(self, value: float | None) -> None:  # noqa: ARG002 - to Ray Tune both are complete
        self.scheduler.on_trial_complete(None, SimpleNamespace(trial_id=self.number), self.last)
        self.search.on_trial_complete(self.number, self.last)


def search_with_ray_tune(task: Task, rule: str | None, seed: int) -> Ask:
    from ray import tune  # noqa: PLC0415 - optional
    from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler  # noqa: PLC0415
    from ray.tune.search.optuna import OptunaSearch  # noqa: PLC0415

    draws = {
        ("float", False): tune.uniform,
        ("float", True): tune.loguniform,
        ("int", False): lambda low, high: tune.randint(low, high + 1),
        ("int", True): lambda low, high: tune.lograndint(low, high + 1),
    }
    space = {
        name: draws[one["type"], one.get("log", False)](one["low"], one["high"]) for name, one in task.space.items()
    }
    search = OptunaSearch(metric=METRIC, mode="min", seed=seed)
    search.set_search_properties(METRIC, "min", space)
    scheduler = FIFOScheduler()
    if rule:
        brackets = 1 + round(math.log(task.steps / MIN_STEP, REDUCTION_FACTOR)) if rule == "hyperband" else 1
        scheduler = AsyncHyperBandScheduler(
            "training_iteration",
            METRIC,
            "min",
            max_t=task.steps + 1,  # a trial that reaches it is stopped; trials here end by themselves
            grace_period=MIN_STEP,
            reduction_factor=REDUCTION_FACTOR,
            brackets=brackets,
        )
    numbers = map(str, range(1_000_000))

    def ask() -> Trial:
        number = next(numbers)
        scheduler.on_trial_add(None, SimpleNamespace(trial_id=number))
        return RayTuneTrial(search, scheduler, number, search.suggest(number))

    return ask
