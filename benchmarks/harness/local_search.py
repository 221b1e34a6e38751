"""A search in this process: the proposals and decisions of the service, without HTTP and a database."""

from dataclasses import dataclass, field

from benchmarks.harness.problems import Point, Task
from benchmarks.harness.search_port import METRIC
from search.early_stopping import InMemoryHistory, MetricReport, Rule, Verdict
from search.early_stopping.in_memory_paused_trials import InMemoryPausedTrials
from search.problem import Observation, Problem, Status
from search.samplers import SamplerSpec
from search.space.space import Space
from search.study import Study, StudyView


@dataclass
class LocalSearch:
    """`ask` returns a promoted trial if there is one, otherwise a new one with the bracket that the rule gives it."""

    task: Task
    rule: Rule
    seed: int
    workers: int = 4
    sampler: str = "tpe"
    history: InMemoryHistory = field(default_factory=InMemoryHistory)
    trials: list["LocalTrial"] = field(default_factory=list)
    _promoted: list["LocalTrial"] = field(default_factory=list)
    _changes: dict[int, Observation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        space = Space.model_validate(self.task.space)
        problem = Problem(space, ("minimize",), prunes=True, max_trials=100_000, parallelism=self.workers)
        self._view = StudyView(Study(problem, SamplerSpec(sampler=self.sampler), self.seed))
        self.paused = InMemoryPausedTrials(self.history, METRIC, "minimize", space, self.seed)

    def ask(self) -> "LocalTrial":
        if self._promoted:
            return self._promoted.pop(0)
        number = len(self.trials)
        drawn = self.rule.draw_bracket(number, self.seed, self.history)
        params = self._view.propose(self._changes.values(), number)
        self._changes = {}
        self.trials.append(LocalTrial(self, number, dict(params), None if drawn is None else drawn.number))
        self.learn(self.trials[-1], "running")
        return self.trials[-1]

    def learn(self, trial: "LocalTrial", status: Status, value: float | None = None) -> None:
        reached = self.history.reached[trial.number]
        self._changes[trial.number] = Observation(
            trial.number,
            trial.point,
            status,
            values=None if value is None else (value,),
            last_step=trial.steps_done or None,
            last_value=trial.last_value,
            rungs=tuple((step, loss) for step, (loss, pool) in sorted(reached.items()) if pool >= 0),
        )

    def release(self) -> None:
        for one in self.rule.releases(self.paused):
            self.paused.resume(one.number)
            self._promoted.append(self.trials[one.number])
            self.learn(self.trials[one.number], "running")


@dataclass
class LocalTrial:
    search: LocalSearch
    number: int
    point: Point
    bracket: int | None = None
    steps_done: int = 0
    last_value: float | None = None
    _stop: Verdict | None = None

    @property
    def pool(self) -> int:
        return self.search.rule.pool_of(self.number, self.bracket)

    def report(self, step: int, value: float) -> bool:
        report = MetricReport(self.number, METRIC, "minimize", step, value, self.steps_done or None, self.bracket)
        self.search.history.curves[self.number][step] = value
        self.steps_done, self.last_value = step, value
        verdicts = list(self.search.rule.decide(report, self.search.history.of(self.number)))
        self._stop = verdicts[-1] if verdicts and verdicts[-1].stop else None
        if verdicts:
            self.search.learn(self, "running")
        if verdicts and not self._stop:
            self.search.release()
        return self._stop is None

    def end(self, value: float | None) -> None:
        """A trial that is stopped at its last step is pruned, as in the service."""
        is_whole = value is not None and self._stop is None
        if value is not None and is_whole:
            self.search.history.complete(self.search.rule, self.number, value)
        self.search.learn(self, "completed" if is_whole else "pruned", value if is_whole else None)
        self.search.paused.any_completed |= is_whole
        if self._stop and self._stop.pauses:
            self.search.paused.pause(self.number, self._stop.milestone, self._stop.value, self.pool)
            self.search.release()
