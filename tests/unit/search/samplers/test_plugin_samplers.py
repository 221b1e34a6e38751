"""Samplers of other packages that raise, or are gone: how a specification that names them deals with that."""

from typing import Any, ClassVar

import pytest

from search.mistakes import Mistake
from search.plugins import STORED, PluginExited
from search.problem import Problem
from search.samplers import LibraryMissing, SamplerSpec
from search.samplers.random import Random, RandomProposer
from search.samplers.registry import sampler_plugins
from search.samplers.sampler import ChosenSampler
from search.space.space import Space
from search.study import Study, StudyView

PROBLEM = Problem(Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}}), ("minimize",), prunes=True)


class Raising(Random):
    """Raises in the hook that `hook` names."""

    learns: ClassVar[bool] = True
    hook: ClassVar[str] = ""
    error: ClassVar[BaseException] = RuntimeError("no licence")

    def _raise_in(self, hook: str) -> None:
        if hook == self.hook:
            raise self.error

    def chooses(self, problem: Problem) -> ChosenSampler | None:
        self._raise_in("chooses")
        return super().chooses(problem)

    def gains_by_curve_score(self, problem: Problem) -> bool:
        self._raise_in("gains_by_curve_score")
        return super().gains_by_curve_score(problem)

    def startup_count(self, problem: Problem) -> int:
        self._raise_in("startup_count")
        return super().startup_count(problem)

    @property
    def learns_from_pruned_trials(self) -> bool:
        self._raise_in("learns_from_pruned_trials")
        return True

    def model_dump(self, **options: Any) -> dict[str, Any]:
        self._raise_in("model_dump")
        return super().model_dump(**options)

    def proposer(self, problem: Problem, seed: int) -> RandomProposer:
        self._raise_in("proposer")
        return super().proposer(problem, seed)


HOOKS = ("chooses", "gains_by_curve_score", "startup_count", "learns_from_pruned_trials", "model_dump")


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sampler_plugins().kinds, "raising", Raising)


@pytest.mark.parametrize("hook", [*HOOKS, "proposer"])
@pytest.mark.parametrize("error", [RuntimeError("no licence"), SystemExit(3)])
def test_a_specification_is_refused_if_a_hook_raises(
    monkeypatch: pytest.MonkeyPatch, hook: str, error: BaseException
) -> None:
    monkeypatch.setattr(Raising, "hook", hook)
    monkeypatch.setattr(Raising, "error", error)
    message = f"raising fails with {type(error).__name__}: {error}"
    spec = SamplerSpec(sampler="raising")
    assert spec.mistakes_with(PROBLEM) == [Mistake(("search", "sampler"), message)]
    assert spec.mistakes_with(PROBLEM, accepted=True) == []


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("error", [RuntimeError("no licence"), SystemExit(3)])
def test_a_hook_that_raises_later_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, hook: str, error: BaseException
) -> None:
    monkeypatch.setattr(Raising, "hook", hook)
    monkeypatch.setattr(Raising, "error", error)
    spec = SamplerSpec(sampler="raising")
    assert spec.chosen_for(PROBLEM).name == "raising"
    assert not spec.uses_curve_score(PROBLEM)
    message = f"raising fails with {type(error).__name__}: {error}"
    assert spec.warnings_with(PROBLEM) == [Mistake(("search", "sampler"), message)]


def test_an_exit_of_a_proposer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Raising, "hook", "proposer")
    monkeypatch.setattr(Raising, "error", SystemExit(3))
    with pytest.raises(PluginExited, match="exits with 3"):
        StudyView(Study(PROBLEM, SamplerSpec(sampler="raising"), 0))


@pytest.mark.parametrize("stored", [{"sampler": "uninstalled"}, {"sampler": "raising", "options": {"old": 1}}])
def test_a_sampler_that_is_gone_waits_and_does_not_keep_the_rest_from_being_changed(stored: dict[str, Any]) -> None:
    spec = SamplerSpec.model_validate(stored, context=STORED)
    assert spec.mistakes_with(PROBLEM) == []
    assert f"{stored['sampler']} cannot be used" in spec.warnings_with(PROBLEM)[0].message
    assert "cannot be used" in (spec.chosen_for(PROBLEM).sampler.lacking or "")
    with pytest.raises(LibraryMissing, match=stored["sampler"]):
        StudyView(Study(PROBLEM, spec, 0))
