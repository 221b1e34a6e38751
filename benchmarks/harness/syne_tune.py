"""Syne Tune's schedulers, which run in an environment of their own: it has Syne Tune and scikit-learn."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from syne_tune import config_space
from syne_tune.backend.trial_status import Trial as SyneTuneRecord
from syne_tune.optimizer import baselines
from syne_tune.optimizer.scheduler import SchedulerDecision

from benchmarks.harness.problems import Point, Task
from benchmarks.harness.search_port import METRIC, MIN_STEP, REDUCTION_FACTOR, Ask

STEP = "step"
SCHEDULERS = {"asha": baselines.ASHA, "bohb": baselines.BOHB, "cqr": baselines.ASHACQR}


@dataclass
class SyneTuneTrial:
    scheduler: Any
    record: SyneTuneRecord
    steps_done: int = 0
    value: float = 0.0

    @property
    def point(self) -> Point:
        return dict(self.record.config)

    @property
    def result(self) -> dict[str, Any]:
        return {METRIC: self.value, STEP: self.steps_done}

    def report(self, step: int, value: float) -> bool:
        self.steps_done, self.value = step, value
        return bool(self.scheduler.on_trial_result(self.record, self.result) == SchedulerDecision.CONTINUE)

    def end(self, value: float | None) -> None:
        if value is None:
            self.scheduler.on_trial_remove(self.record)
        else:
            self.scheduler.on_trial_complete(self.record, self.result)


def search_with_syne_tune(task: Task, scheduler: str, seed: int) -> Ask:
    made = SCHEDULERS[scheduler](
        {name: _domain(**one) for name, one in task.space.items()},
        metric=METRIC,
        time_attr=STEP,
        max_t=task.steps + 1,  # a trial that reaches it is stopped; trials here end by themselves
        random_seed=seed,
        grace_period=MIN_STEP,
        reduction_factor=REDUCTION_FACTOR,
    )
    numbers = iter(range(1_000_000))

    def ask() -> SyneTuneTrial:
        record = SyneTuneRecord(next(numbers), made.suggest().config, datetime.now(UTC))
        made.on_trial_add(record)
        return SyneTuneTrial(made, record)

    return ask


def _domain(type: str, low: float, high: float, *, log: bool = False) -> Any:  # noqa: A002 - as a spec says
    kinds = {
        ("float", False): config_space.uniform,
        ("float", True): config_space.loguniform,
        ("int", False): config_space.randint,
        ("int", True): config_space.lograndint,
    }
    return kinds[type, log](low, high)
