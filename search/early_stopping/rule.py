"""The contract of an early stopping rule. A new rule is a subclass in `rules/` and a line in the registry."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from search.early_stopping.bracket import Bracket, CompletedTrials
from search.early_stopping.decision import Release, Verdict
from search.early_stopping.history import ALL, UNCOMPARED, History, MetricReport
from search.early_stopping.paused_trials import PausedTrials
from search.json_types import JsonModel
from search.problem import Direction

MAX_COUNT = 2**53
"""The maximum of options that count steps or trials; larger numbers may not fit in a database column."""


class Rule(JsonModel):
    """The fields are the rule's options; a subclass has `rule: Literal["name"] = "name"`. This one never stops a trial.

    Decisions are functions of stored reports by step, so that a retry or a restart changes nothing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule: str
    """the name of the rule"""
    not_replayed: ClassVar[str | None] = None
    """Why the rule cannot be replayed on recorded reports; None if it can."""

    @property
    def compares_completed(self) -> bool:
        """Whether trials are compared only with completed ones, which then move to the pool COMPLETED."""
        return False

    @property
    def draws_brackets(self) -> bool:
        """Whether trials get their bracket by `draw_bracket`, and keep it."""
        return False

    @property
    def keeps_ends(self) -> bool:
        """Whether completed trials reach the milestone AT_END."""
        return self.compares_completed or self.draws_brackets

    def draw_bracket(self, number: int, seed: int, completed: CompletedTrials) -> Bracket | None:  # noqa: ARG002
        """The bracket of a new trial: a function of its number, the experiment's seed and what has completed."""
        return None

    def value_at_end(self, last_value: float, history: History) -> float:  # noqa: ARG002
        """The value by which a completed trial ranks at AT_END; `history` is that of the trial."""
        return last_value

    @property
    def pauses(self) -> bool:
        """Whether the rule may pause trials: its verdict then has `stop` and `pauses`."""
        return False

    @property
    def paused_trials_lose(self) -> bool:
        """Whether trials that are still paused at the end have lost. Otherwise they may be the best."""
        return True

    def pool_of(self, number: int, bracket: int | None = None) -> int:  # noqa: ARG002
        """The pool in which the trial is recorded while it runs, and compared unless only completed ones count.

        `bracket` is the number of the bracket that is stored with the trial.
        """
        return ALL

    def compares_at(self, milestone: int, pool: int) -> bool:  # noqa: ARG002
        """Whether trials of the pool are compared at the milestone, and not only recorded."""
        return True

    def pool_at(self, milestone: int, number: int, bracket: int | None = None) -> int:
        """The pool in which the trial reaches the milestone."""
        pool = self.pool_of(number, bracket)
        return pool if self.compares_at(milestone, pool) else UNCOMPARED

    def milestones(self, report: MetricReport, history: History) -> list[int]:  # noqa: ARG002
        """The milestones that the report reaches, in order; the trial may have reached some of them before."""
        return []

    def decide(self, report: MetricReport, history: History) -> Iterator[Verdict]:  # noqa: ARG002
        """A verdict for each milestone that the trial reaches with this report, up to the first that stops it."""
        return iter(())

    def releases(self, paused: PausedTrials) -> Iterator[Release]:  # noqa: ARG002
        """The trials that resume. The caller applies each before it takes the next, and `paused` reflects that."""
        return iter(())


class StoppingRule(Rule):
    """A rule that may stop trials: a subclass implements `milestones` and `judge`.

    `metric`, with its `direction`, is what trials are compared by; the default is the experiment's only objective.
    `grace_steps`: no trial is stopped before this step, but it is recorded and compared.
    """

    metric: Annotated[str, Field(min_length=1)] | None = None
    """what trials are compared by; absent: the only objective"""
    direction: Direction | None = None
    """whether larger or smaller values of `metric` are better; absent: as the objective"""
    grace_steps: Annotated[int, Field(ge=0)] = 0
    """no trial is stopped before this step; earlier reports are still recorded and compared"""

    @property
    def last_step(self) -> int | None:
        """The last step of a trial that is not stopped, at which nothing is left to save; None if it is not known."""
        return None

    def judge(self, report: MetricReport, milestone: int, history: History) -> Verdict | None:
        """The verdict on a trial that has reached the milestone, without regard to grace; None if there is none."""
        raise NotImplementedError

    def decide(self, report: MetricReport, history: History) -> Iterator[Verdict]:
        """The first value at a milestone is kept. A trial that is stopped does not reach later milestones."""
        for milestone in self.milestones(report, history):
            pool = self.pool_at(milestone, report.number, report.bracket)
            if not history.reach(milestone, report.value, pool) or pool == UNCOMPARED:
                continue
            verdict = self.judge(report, milestone, history)
            if verdict is None:
                continue
            if verdict.stop and (spared := self.why_spared(report)) is not None:
                verdict = replace(verdict, stop=False, pauses=False, reason=f"{verdict.reason}; {spared}")
            yield verdict
            if verdict.stop:
                return

    def why_spared(self, report: MetricReport) -> str | None:
        """Why the trial is not stopped at this report, whatever it says; None where it may be stopped."""
        if report.step < self.grace_steps:
            return f"no trial is stopped before step {self.grace_steps}"
        if self.last_step is not None and report.step >= self.last_step:
            return f"no trial is stopped at its last step, {self.last_step}"
        return None
