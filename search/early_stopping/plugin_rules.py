"""The border to rules of other packages: what they return is checked before any of it is stored.

No other module of the service or the search reads what a rule decides, or its traits, from the rule itself.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from operator import index
from typing import Any, Literal, get_args

from search.early_stopping.bracket import Bracket, CompletedTrials
from search.early_stopping.decision import MAX_COMPARED_WITH, Grounds, Release, Verdict
from search.early_stopping.history import ALL, History, MetricReport
from search.early_stopping.paused_trials import PausedTrials
from search.early_stopping.peers import Peers
from search.early_stopping.rule import Rule
from search.early_stopping.rules.wrappable_rules import is_plugin
from search.plugins import PluginFailed, exits_as_errors, plugin_failures, storable
from search.problem import Direction
from search.reported_numbers import finite_number

MAX_INTEGER = 2**63
"""The first integer that a database column does not hold."""


def rule_failures(rule: Rule, *others: type[Exception]) -> AbstractContextManager[None]:
    """Raise PluginFailed instead of what a rule of another package raises; see `plugin_failures`."""
    return plugin_failures(rule.rule, *others, is_plugin=is_plugin(rule))


Trait = Literal["compares_completed", "draws_brackets", "keeps_ends", "pauses", "paused_trials_lose"]
"""A property of a `Rule` that is true or false."""


def has_trait(rule: Rule, name: Trait) -> bool:
    """As the rule's property, which a caller must not read itself.

    One of another package's rule that raises, or is neither true nor false, counts as if the class did not have it.
    """
    if not is_plugin(rule):
        return bool(getattr(rule, name))
    try:
        return _trait_of_plugin(rule, name)
    except PluginFailed:
        return bool(getattr(Rule(rule=rule.rule), name))


def check_traits(rule: Rule) -> None:
    """Raises PluginFailed for the first that fails."""
    for name in get_args(Trait) if is_plugin(rule) else ():
        _trait_of_plugin(rule, name)


def _trait_of_plugin(rule: Rule, name: Trait) -> bool:
    with rule_failures(rule):
        return _truth(name, getattr(rule, name))


def pool_of(rule: Rule, number: int, bracket: int | None) -> int:
    """As `Rule.pool_of`, which a caller must not call itself. See `verdicts_of`."""
    if not is_plugin(rule):
        return rule.pool_of(number, bracket)
    with exits_as_errors():
        return _integer("pool", rule.pool_of(number, bracket))


def value_at_end(rule: Rule, last_value: float, history: History) -> float | None:
    """As `Rule.value_at_end`, which a caller must not call itself; None if it is not finite. See `verdicts_of`."""
    if not is_plugin(rule):
        return finite_number(rule.value_at_end(last_value, history))
    with exits_as_errors():
        return _finite("value_at_end", rule.value_at_end(last_value, CheckedHistory(history)))


def milestones_of(rule: Rule, report: MetricReport, history: History) -> list[tuple[int, int]]:
    """The milestones that the report reaches, each with the pool of the trial there. See `verdicts_of`."""
    number, bracket = report.number, report.bracket
    if not is_plugin(rule):
        return [(one, rule.pool_at(one, number, bracket)) for one in rule.milestones(report, history)]
    with exits_as_errors():
        reached = [_milestone(one, report) for one in rule.milestones(report, CheckedHistory(history, report))]
        return [(one, _integer("pool", rule.pool_at(one, number, bracket))) for one in reached]


def verdicts_of(rule: Rule, report: MetricReport, history: History) -> Iterator[tuple[Verdict, int]]:
    """As `Rule.decide`, which a caller must not call itself; with the pool in which the trial waits if it pauses.

    A verdict of another package's rule has Python's own numbers, which can be stored. One that has no such numbers
    raises TypeError or ValueError.
    """
    if not is_plugin(rule):
        for verdict in rule.decide(report, history):
            yield verdict, rule.pool_of(report.number, report.bracket) if verdict.pauses else ALL
        return
    with exits_as_errors():
        for verdict in rule.decide(report, CheckedHistory(history, report)):
            checked = _checked(verdict, rule, report)
            yield checked, pool_of(rule, report.number, report.bracket) if checked.pauses else ALL


@dataclass(frozen=True)
class CheckedHistory:
    """A `History` for a rule of another package: its calls become calls with Python's own numbers, or raise.

    Without a report that is judged, the trial reaches no milestone.
    """

    history: History
    report: MetricReport | None = None
    _reached: set[int] = field(default_factory=set)

    def reach(self, milestone: int, value: float, pool: int) -> bool:
        if self.report is None:
            raise TypeError("a trial reaches a milestone only with a report")
        checked = _milestone(milestone, self.report)
        if checked in self._reached:
            return False
        self._reached.add(checked)
        return self.history.reach(checked, _finite("value", value), _integer("pool", pool))

    def peers(self, milestone: int, pool: int) -> Peers:
        return self.history.peers(_integer("milestone", milestone), _integer("pool", pool))

    def curve(self, number: int | None = None) -> Mapping[int, float]:
        return self.history.curve(None if number is None else _integer("number", number))

    def best_value(self, direction: Direction) -> float:
        return self.history.best_value(direction)

    def best_since_and_before(self, count: int, direction: Direction) -> tuple[float, float] | None:
        return self.history.best_since_and_before(_integer("count", count), direction)


def releases_of(rule: Rule, paused: PausedTrials) -> Iterator[Release]:
    """As `Rule.releases`, which a caller must not call itself. See `verdicts_of`."""
    if not is_plugin(rule):
        yield from rule.releases(paused)
        return
    with exits_as_errors():
        for release in rule.releases(paused):
            yield _checked_release(release)


def bracket_of(rule: Rule, number: int, seed: int, completed: CompletedTrials) -> Bracket | None:
    """As `Rule.draw_bracket`, which a caller must not call itself. See `verdicts_of`."""
    if not is_plugin(rule):
        return rule.draw_bracket(number, seed, completed)
    with exits_as_errors():
        drawn: object = rule.draw_bracket(number, seed, completed)
    if drawn is None:
        return None
    if not isinstance(drawn, Bracket):
        raise TypeError(f"a bracket must be a Bracket, not {type(drawn).__name__}")
    return Bracket(
        number=_integer("number", drawn.number),
        first_step=_integer("first_step", drawn.first_step),
        share=_finite("share", drawn.share),
        weight=_finite("weight", drawn.weight),
        agreement=None if drawn.agreement is None else _finite("agreement", drawn.agreement),
        trial_count=_integer("trial_count", drawn.trial_count),
    )


def _checked_release(release: object) -> Release:
    if not isinstance(release, Release):
        raise TypeError(f"a release must be a Release, not {type(release).__name__}")
    return replace(
        release,
        **_checked_grounds(release, _integer("milestone", release.milestone)),
        number=_integer("number", release.number),
        donor=None if release.donor is None else _integer("donor", release.donor),
    )


def _checked(verdict: object, rule: Rule, report: MetricReport) -> Verdict:
    if not isinstance(verdict, Verdict):
        raise TypeError(f"a verdict must be a Verdict, not {type(verdict).__name__}")
    return replace(
        verdict,
        **_checked_grounds(verdict, _milestone(verdict.milestone, report)),
        step=report.step,
        stop=_truth("stop", verdict.stop),
        pauses=_truth("pauses", verdict.pauses) and bool(verdict.stop) and has_trait(rule, "pauses"),
    )


def _checked_grounds(said: Grounds, milestone: int) -> dict[str, Any]:
    """The fields of `Grounds`, by name."""
    if not isinstance(said.reason, str):
        raise TypeError(f"reason must be text, not {type(said.reason).__name__}")
    return {
        "milestone": milestone,
        "value": _finite("value", said.value),
        "cutoff": None if said.cutoff is None else finite_number(float(said.cutoff)),
        "compared_count": _integer("compared_count", said.compared_count),
        "compared_with": tuple(_integer("compared_with", one) for one in said.compared_with)[:MAX_COMPARED_WITH],
        "reason": storable(said.reason),
    }


def _milestone(value: object, report: MetricReport) -> int:
    milestone = _integer("milestone", value)
    if not 0 <= milestone <= report.step:
        raise ValueError(f"a milestone must be from 0 to the reported step {report.step}, not {milestone}")
    return milestone


def _integer(name: str, value: Any) -> int:
    try:
        integer = index(value)
    except TypeError as error:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from error
    if not -MAX_INTEGER <= integer < MAX_INTEGER:
        raise ValueError(f"{name} must have at most 64 bits, not {integer.bit_length()}")
    return integer


def _finite(name: str, value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, not {number}")
    return number


def _truth(name: str, value: Any) -> bool:
    if value not in (True, False):
        raise TypeError(f"{name} must be true or false, not {value!r}")
    return bool(value)
