"""What rules of other packages return: made storable, or refused before anything of it is stored."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

import numpy as np
import pytest
from pydantic import TypeAdapter, field_validator

from search.early_stopping import InMemoryHistory, MetricReport, Release, Verdict
from search.early_stopping.bracket import Bracket, CompletedTrials
from search.early_stopping.compared_metric import ComparedMetric
from search.early_stopping.comparison_warnings import warnings_about_comparison
from search.early_stopping.history import ALL, History
from search.early_stopping.paused_trials import PausedTrials
from search.early_stopping.plugin_rules import (
    Trait,
    bracket_of,
    has_trait,
    milestones_of,
    pool_of,
    releases_of,
    value_at_end,
    verdicts_of,
)
from search.early_stopping.rule import StoppingRule
from search.early_stopping.rule_parser import Missing, one_of
from search.early_stopping.rules.patient import Patient
from search.early_stopping.rules.wrappable_rules import PLUGINS, NoneSpec
from search.mistakes import parse
from search.plugins import STORED, PluginExited, PluginFailed, Plugins
from search.problem import Problem
from search.space.space import Space

Decided = Callable[..., tuple[list[Verdict], list[Any]]]


@dataclass
class Reached:
    """A history that notes what is reached."""

    found: list[Any] = field(default_factory=list)

    def reach(self, milestone: int, value: float, pool: int) -> bool:
        self.found.append((milestone, value, pool))
        return True


class Odd(StoppingRule):
    rule: Literal["odd"] = "odd"
    reached: ClassVar[Any] = [3]
    said: ClassVar[dict[str, Any]] = {}
    raises: ClassVar[BaseException | None] = None

    def milestones(self, report: MetricReport, history: History) -> list[int]:  # noqa: ARG002
        return cast("list[int]", self.reached)

    def judge(self, report: MetricReport, milestone: int, history: History) -> Verdict:  # noqa: ARG002
        if self.raises is not None:
            raise self.raises
        plain: dict[str, Any] = {
            "stop": False,
            "rule": "odd",
            "step": 3,
            "milestone": milestone,
            "value": 0.5,
            "cutoff": None,
        }
        return Verdict(**(plain | {"compared_count": 0, "reason": "as it is"} | self.said))


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> Decided:
    """Return the verdicts of a rule with these answers at step 3, and the milestones that it has reached."""
    monkeypatch.setitem(PLUGINS.kinds, "odd", Odd)

    def decide(reached: Any = (3,), raises: BaseException | None = None, **said: Any) -> tuple[list[Verdict], Any]:
        monkeypatch.setattr(Odd, "reached", reached)
        monkeypatch.setattr(Odd, "said", said)
        monkeypatch.setattr(Odd, "raises", raises)
        history = Reached()
        report = MetricReport(0, "loss", "minimize", 3, 0.5)
        return [verdict for verdict, _ in verdicts_of(Odd(), report, cast("History", history))], history.found

    return decide


def test_numbers_of_numpy_become_pythons_own(decided: Decided) -> None:
    [verdict], found = decided(
        [np.int64(2)],
        compared_count=np.int64(4),
        compared_with=(np.int64(1),),
        cutoff=np.float64(1),
        value=np.float32(2),
        stop=np.bool_(True),
    )
    assert found == [(2, 0.5, 0)]
    assert [type(one) for one in found[0]] == [int, float, int]
    grounds = verdict.grounds()
    assert (verdict.stop, grounds["compared_count"], grounds["compared_with"]) == (True, 4, [1])
    kinds = [type(grounds[name]) for name in ("milestone", "value", "cutoff", "compared_count")]
    assert kinds == [int, float, float, int]
    assert type(verdict.stop) is bool


@pytest.mark.parametrize(
    ("said", "name", "shown"),
    [
        ({"reason": "a\ud800b\0c"}, "reason", "a?b?c"),
        ({"cutoff": float("inf")}, "cutoff", None),
        ({"step": 2**70}, "step", 3),
        ({"stop": True, "pauses": True}, "pauses", False),
        ({"compared_with": tuple(range(20))}, "compared_with", tuple(range(10))),
    ],
)
def test_what_cannot_be_stored_is_replaced(decided: Decided, said: dict[str, Any], name: str, shown: object) -> None:
    [verdict], _ = decided(**said)
    assert getattr(verdict, name) == shown


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"reason": None}, "reason must be text"),
        ({"compared_count": 1.5}, "compared_count must be a whole number"),
        ({"compared_count": 2**70}, "compared_count must have at most 64 bits"),
        ({"milestone": 4}, "from 0 to the reported step 3, not 4"),
        ({"value": float("nan")}, "value must be finite"),
        ({"cutoff": object()}, "float"),
        ({"stop": "stop"}, "stop must be true or false"),
        ({"reached": [1.5]}, "milestone must be a whole number"),
        ({"reached": [2**70]}, "milestone must have at most 64 bits"),
        ({"reached": [4]}, "from 0 to the reported step 3, not 4"),
        ({"reached": [-1]}, "from 0 to the reported step 3, not -1"),
    ],
)
def test_what_says_nothing_certain_is_refused(decided: Decided, said: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        decided(**said)


def test_a_milestone_that_is_named_twice_is_reached_once(
    decided: Decided,
) -> None:
    verdicts, found = decided([3, 3, np.int64(3)])
    assert [one.milestone for one in verdicts] == [3]
    assert found == [(3, 0.5, 0)]


def test_an_exit_is_an_error(decided: Decided) -> None:
    with pytest.raises(PluginExited, match="exits with 3"):
        decided(raises=SystemExit(3))


def test_a_verdict_that_does_not_stop_the_trial_does_not_pause_it(decided: Decided) -> None:
    [verdict], _ = decided(pauses=True, stop=False)
    assert (verdict.stop, verdict.pauses) == (False, False)


class Giving(StoppingRule):
    """Gives every trial this bracket, and releases these trials."""

    rule: Literal["giving"] = "giving"
    bracket: ClassVar[Any] = None
    released: ClassVar[list[Any]] = []

    def draw_bracket(self, number: int, seed: int, completed: CompletedTrials) -> Bracket | None:  # noqa: ARG002
        return cast("Bracket | None", self.bracket)

    def releases(self, paused: PausedTrials) -> Iterator[Release]:  # noqa: ARG002
        yield from self.released


@pytest.fixture
def giving(monkeypatch: pytest.MonkeyPatch) -> Giving:
    monkeypatch.setitem(PLUGINS.kinds, "giving", Giving)
    return Giving()


def test_a_bracket_has_pythons_own_numbers_or_is_refused(giving: Giving, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = [np.int64(1), np.int64(3), np.float64(0.5), 1, None, np.int64(2)]
    monkeypatch.setattr(Giving, "bracket", Bracket(*given))
    found = bracket_of(giving, 0, 0, cast("CompletedTrials", None))
    assert found == Bracket(1, 3, 0.5, 1.0, None, 2)
    assert [type(one) for one in vars(found).values()] == [int, int, float, float, type(None), int]
    for wrong in ({"number": 1}, Bracket(1, 3, math.nan, 1.0, None, 2)):
        monkeypatch.setattr(Giving, "bracket", wrong)
        with pytest.raises((TypeError, ValueError), match="must be"):
            bracket_of(giving, 0, 0, cast("CompletedTrials", None))


def test_a_release_has_pythons_own_numbers_or_is_refused(giving: Giving, monkeypatch: pytest.MonkeyPatch) -> None:
    plain: dict[str, Any] = {
        "milestone": np.int64(3),
        "value": 0.5,
        "cutoff": None,
        "compared_count": 0,
        "reason": "its turn",
        "number": np.int64(7),
        "decision": "continue",
    }
    monkeypatch.setattr(Giving, "released", [Release(**plain)])
    [release] = releases_of(giving, cast("PausedTrials", None))
    assert (release.number, type(release.number), type(release.milestone)) == (7, int, int)
    for wrong in ("a trial", Release(**plain | {"number": 7.5}), Release(**plain | {"reason": None})):
        monkeypatch.setattr(Giving, "released", [wrong])
        with pytest.raises(TypeError, match="must be"):
            list(releases_of(giving, cast("PausedTrials", None)))


TRAITS: tuple[Trait, ...] = ("compares_completed", "draws_brackets", "keeps_ends", "pauses", "paused_trials_lose")
NOT_FINITE = [RuntimeError("no licence"), SystemExit(3), math.nan, "text", 10**5000, object(), np.array([1, 0])]
WRONG = [*NOT_FINITE, 1.5]


def short(value: object) -> str:
    """The text lacks the address, which would differ between the processes of pytest-xdist."""
    if isinstance(value, int):
        return "huge"
    return "object" if type(value) is object else repr(value)


def answered(answer: Any) -> Any:
    """The answer of a hook; an exception is raised."""
    if isinstance(answer, BaseException):
        raise answer
    return answer


class Hooked(StoppingRule):
    """Answers as `answers` says, by the name of the hook."""

    rule: Literal["hooked"] = "hooked"
    answers: ClassVar[dict[str, Any]] = {}

    def pool_of(self, number: int, bracket: int | None = None) -> int:  # noqa: ARG002
        return cast("int", answered(self.answers.get("pool_of", 0)))

    def value_at_end(self, last_value: float, history: History) -> float:  # noqa: ARG002
        return cast("float", answered(self.answers.get("value_at_end", last_value)))

    def milestones(self, report: MetricReport, history: History) -> list[int]:  # noqa: ARG002
        return cast("list[int]", answered(self.answers.get("milestones", [report.step])))


def trait(name: str) -> property:
    return property(lambda rule: answered(rule.answers.get(name, True)))


for one in TRAITS:
    setattr(Hooked, one, trait(one))


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Hooked]:
    monkeypatch.setitem(PLUGINS.kinds, "hooked", Hooked)

    def rule(**answers: Any) -> Hooked:
        monkeypatch.setattr(Hooked, "answers", answers)
        return Hooked()

    return rule


@pytest.mark.parametrize("name", TRAITS)
@pytest.mark.parametrize("answer", WRONG, ids=short)
def test_a_trait_that_fails_counts_as_the_default_and_is_a_warning(
    hooked: Callable[..., Hooked], name: str, answer: Any
) -> None:
    rule = hooked(**{name: answer})
    expected = dict.fromkeys(TRAITS, True) | {name: name == "paused_trials_lose"}
    assert {one: has_trait(rule, one) for one in TRAITS} == expected
    problem = Problem(Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}}), ("minimize",), prunes=True)
    [warning] = warnings_about_comparison(rule, problem, [ComparedMetric("loss", "minimize")])
    assert warning.path == ("early_stopping", "rule")
    assert warning.message.startswith("hooked fails with ")


@pytest.mark.parametrize("answer", WRONG, ids=short)
def test_a_pool_is_a_whole_number_or_an_error(hooked: Callable[..., Hooked], answer: Any) -> None:
    found = pool_of(hooked(pool_of=np.int64(3)), 0, None)
    assert (found, type(found)) == (3, int)
    with pytest.raises(Exception):  # noqa: B017, PT011 - which one is no part of the contract; SystemExit is none
        pool_of(hooked(pool_of=answer), 0, None)


def test_a_trial_that_is_paused_waits_in_a_pool_that_is_a_whole_number(
    hooked: Callable[..., Hooked], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Verdict(
        stop=True, pauses=True, rule="hooked", step=3, milestone=3, value=0.5, cutoff=None, compared_count=0, reason="-"
    )
    monkeypatch.setattr(Hooked, "decide", lambda *_: iter([said]))
    report, history = MetricReport(0, "loss", "minimize", 3, 0.5), InMemoryHistory()
    [(verdict, pool)] = verdicts_of(hooked(pool_of=np.int64(3)), report, history.of(0))
    assert (verdict.pauses, pool, type(pool)) == (True, 3, int)
    with pytest.raises(TypeError, match="pool must be a whole number"):
        list(verdicts_of(hooked(pool_of=1.5), report, history.of(0)))
    [(verdict, pool)] = verdicts_of(hooked(pool_of=3, pauses=False), report, history.of(0))
    assert (verdict.pauses, pool) == (False, ALL)


@pytest.mark.parametrize("answer", NOT_FINITE, ids=short)
def test_a_value_at_the_end_is_finite_or_an_error(hooked: Callable[..., Hooked], answer: Any) -> None:
    history = InMemoryHistory()
    found = value_at_end(hooked(value_at_end=np.float32(0.5)), 1.0, history.of(0))
    assert (found, type(found)) == (0.5, float)
    rule = hooked(value_at_end=answer)
    history.of(0).reach(3, 0.5, ALL)
    with pytest.raises(Exception):  # noqa: B017, PT011 - see above
        history.complete(rule, 0, 0.5)
    assert history.reached[0] == {3: (0.5, ALL)}


@pytest.mark.parametrize("answer", [[4], [1.5], [2**70], RuntimeError("no licence"), SystemExit(3)], ids=short)
def test_milestones_are_those_up_to_the_report_or_an_error(hooked: Callable[..., Hooked], answer: Any) -> None:
    report, history = MetricReport(0, "loss", "minimize", 3, 0.5), InMemoryHistory()
    assert milestones_of(hooked(milestones=[np.int64(2)]), report, history.of(0)) == [(2, ALL)]
    with pytest.raises(Exception):  # noqa: B017, PT011 - see above
        milestones_of(hooked(milestones=answer), report, history.of(0))


class Picky(StoppingRule):
    """Its validator raises what no validator should."""

    rule: Literal["picky"] = "picky"
    licence: str = ""
    raises: ClassVar[BaseException] = RuntimeError("no licence")

    @field_validator("licence")
    @classmethod
    def _is_valid(cls, licence: str) -> str:
        if licence:
            raise cls.raises
        return licence


@pytest.mark.parametrize("error", [RuntimeError("no licence"), SystemExit(3)], ids=repr)
def test_a_validator_that_raises_is_a_mistake_and_stands_for_itself_in_a_stored_specification(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(Picky, "raises", error)
    adapter: TypeAdapter[Any] = TypeAdapter(one_of({"none": NoneSpec, "picky": Picky}, Plugins({"picky": Picky})))
    given = {"rule": "picky", "licence": "old"}
    _, (mistake, *_) = parse(adapter, given)
    assert mistake.message.startswith(f"picky fails with {type(error).__name__}: {error}")
    stored = adapter.validate_python(given, context=STORED)
    assert (type(stored), stored.model_dump()) == (Missing, given)


@pytest.mark.parametrize("answer", [RuntimeError("no licence"), SystemExit(3)], ids=repr)
def test_a_wrapped_rule_that_cannot_say_whether_it_pauses_is_a_mistake(
    hooked: Callable[..., Hooked], answer: BaseException
) -> None:
    wrapped = hooked(pauses=answer)
    with pytest.raises(PluginFailed, match="hooked fails with"):
        Patient._wrapped_rule_does_not_pause(wrapped)


@pytest.mark.parametrize("kinds", [{}, {"odd": Odd}], ids=["no package", "another package"])
def test_a_stored_rule_that_wraps_one_of_a_removed_package_stops_no_trial(
    monkeypatch: pytest.MonkeyPatch, kinds: dict[str, Any]
) -> None:
    for name, kind in kinds.items():
        monkeypatch.setitem(PLUGINS.kinds, name, kind)
    adapter: TypeAdapter[Any] = TypeAdapter(one_of({"patient": Patient}, PLUGINS))
    stored = adapter.validate_python(
        {"rule": "patient", "patience": 0, "wrapped_rule": {"rule": "gone"}}, context=STORED
    )
    assert type(stored) is Missing
    assert not has_trait(stored, "pauses")
    report, history = MetricReport(0, "loss", "minimize", 3, 0.5), InMemoryHistory()
    assert list(verdicts_of(stored, report, history.of(0))) == []
