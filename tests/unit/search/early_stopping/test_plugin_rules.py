"""What rules of other packages return: made storable, or refused before anything of it is stored."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

import numpy as np
import pytest

from search.early_stopping import MetricReport, Verdict
from search.early_stopping.history import History
from search.early_stopping.plugin_rules import verdicts_of
from search.early_stopping.rule import StoppingRule
from search.early_stopping.rules.standalone_rules import PLUGINS
from search.plugins import PluginExited

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
    """The verdicts at step 3 of a rule that says this, and what the history was told."""
    monkeypatch.setitem(PLUGINS.kinds, "odd", Odd)

    def decide(reached: Any = (3,), raises: BaseException | None = None, **said: Any) -> tuple[list[Verdict], Any]:
        monkeypatch.setattr(Odd, "reached", reached)
        monkeypatch.setattr(Odd, "said", said)
        monkeypatch.setattr(Odd, "raises", raises)
        history = Reached()
        report = MetricReport(0, "loss", "minimize", 3, 0.5)
        return list(verdicts_of(Odd(), report, cast("History", history))), history.found

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
