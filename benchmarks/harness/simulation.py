"""Simulated workers: they train the proposed configurations of a problem with known curves, in simulated time."""

import heapq
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.harness.problems import Task
from benchmarks.harness.search_port import Ask


@dataclass
class BestCurve:
    """The best value after each ended trial, with the simulated second of its end.

    `expected` is what a repetition of the best trial is expected to end with.
    """

    seconds: list[float] = field(default_factory=lambda: [0.0])
    best: list[float] = field(default_factory=lambda: [math.inf])
    expected: list[float] = field(default_factory=lambda: [math.inf])

    def add(self, second: float, value: float, expected: float) -> None:
        is_best = value < self.best[-1]
        self.seconds.append(second)
        self.best.append(value if is_best else self.best[-1])
        self.expected.append(expected if is_best else self.expected[-1])

    def after_trials(self, count: float) -> float:
        return self.best[min(int(count), len(self.best) - 1)]

    def after_seconds(self, seconds: float) -> float:
        return self.best[self._index(seconds)]

    def expected_after_seconds(self, seconds: float) -> float:
        return self.expected[self._index(seconds)]

    def _index(self, seconds: float) -> int:
        return int(np.searchsorted(self.seconds, seconds, side="right")) - 1


def simulate(
    task: Task, ask: Ask, *, trials: float = math.inf, seconds: float = math.inf, start: float = 0, workers: int = 4
) -> BestCurve:
    """Simulate the workers until the number of trials or seconds is reached."""
    course, asked = BestCurve(), workers
    queue: list[Any] = []

    def begin(second: float, worker: int) -> None:
        trial = ask()
        first = second + start + task.seconds(trial.point)
        next_step = min(trial.steps_done + 1, task.steps)  # of one that was paused at its end, nothing is left
        heapq.heappush(queue, (first, worker, next_step, trial, task.curve(trial.point)))

    for worker in range(workers):
        begin(0.0, worker)
    while queue and queue[0][0] <= seconds:
        second, worker, step, trial, curve = heapq.heappop(queue)
        goes_on = step == trial.steps_done or trial.report(step, curve[step - 1])
        if goes_on and step < task.steps:
            heapq.heappush(queue, (second + task.seconds(trial.point), worker, step + 1, trial, curve))
            continue
        is_whole = step == task.steps
        trial.end(curve[-1] if is_whole else None)
        value = curve[-1] if is_whole else math.inf
        course.add(second, value, task.expected(trial.point, value) if is_whole else math.inf)
        if asked < trials:
            asked += 1
            begin(second, worker)
    return course


def slowed(task: Task, pace: float) -> Task:
    return replace(task, seconds=lambda point: pace * task.seconds(point))


def whole_seconds(task: Task) -> float:
    """The duration of a whole training, between that of the lowest point and that of the highest."""
    low, high = ({name: one[end] for name, one in task.space.items()} for end in ("low", "high"))
    return task.steps * (task.seconds(low) + task.seconds(high)) / 2
