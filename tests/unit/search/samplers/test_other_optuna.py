"""With an Optuna whose private parts have changed, samplers use its public classes, and propose as well."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest

from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Params, Space
from search.study import Study, StudyView, propose
from tests.conformance.sampler_problems import PROBLEMS, SEED, history_of

OPTIONS: dict[str, dict[str, Any]] = {
    "tpe": {"n_startup_trials": 3},
    "cmaes": {"popsize": 4},
    "qmc": {"scramble": True},
}
PLANE = Space.model_validate({name: {"type": "float", "low": 0, "high": 1} for name in "xy"})


@pytest.fixture
def _public_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("tpe", "cmaes", "qmc"):
        monkeypatch.setattr(f"search.samplers.{module}.usable", lambda _: False)


def a_study(sampler: str, problem: Problem) -> Study:
    return Study(problem, SamplerSpec(sampler=sampler, options=OPTIONS[sampler]), SEED)


@pytest.mark.usefixtures("_public_only")
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("sampler", OPTIONS)
@pytest.mark.parametrize("label", ["categorical", "conditional", "forbidden", "one value", "maximize"])
def test_a_public_class_proposes_configurations_as_a_function_of_the_history(sampler: str, label: str) -> None:
    study = a_study(sampler, PROBLEMS[label])
    history = history_of(study.problem, 10)
    view = StudyView(study, history[::-1])
    proposed = view.propose([], 10)
    assert study.problem.space.mistakes_in(proposed) == []
    assert view.propose([], 10) == propose(study, [*history, Observation(10, proposed, "running")], 10) == proposed


@pytest.mark.parametrize("label", ["conditional", "constrained", "two objectives"])
def test_tpes_public_class_proposes_the_same(label: str, request: pytest.FixtureRequest) -> None:
    study = a_study("tpe", PROBLEMS[label])
    history = history_of(study.problem, 12)
    ours = propose(study, history, 12)
    request.getfixturevalue("_public_only")
    assert propose(study, history, 12) == ours


def distance(params: Params) -> float:
    return float(sum((float(value) - 0.3) ** 2 for value in params.values()))  # type: ignore[arg-type,misc]


CODE = f"""
import json, logging, sys
logging.basicConfig(stream=sys.stderr)
from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Space
from search.study import Study, StudyView
space = Space.model_validate({PLANE.model_dump(mode="json")!r})
found = {{}}
for sampler, options, count in (("qmc", {{}}, 24), ("cmaes", {{"popsize": 4}}, 40), ("tpe", {{}}, 16)):
    view = StudyView(Study(Problem(space, ("minimize",)), SamplerSpec(sampler=sampler, options=options), {SEED}))
    found[sampler] = []
    for number in range(count):
        params = view.propose([], number)
        found[sampler].append(params)
        value = sum((one - 0.3) ** 2 for one in params.values())
        view.update([Observation(number, params, "completed", (value,), 1, value)])
print(json.dumps(found))
"""
RENAMED = {
    "methods that Optuna does not call then": ["_find_sample_id", "_restore_optimizer"],
    "names that cannot be imported then": ["_ParzenEstimatorParameters"],
}


@pytest.mark.slow
@pytest.mark.parametrize("names", RENAMED.values(), ids=RENAMED)
def test_after_a_renaming_inside_optuna_samplers_still_search_and_the_log_says_so(
    names: list[str], tmp_path: Path
) -> None:
    changed = shutil.copytree(Path(optuna.__file__).parent, tmp_path / "optuna")
    for path in changed.rglob("*.py"):
        text = path.read_text()
        for name in names:
            text = text.replace(name, f"{name}_renamed")
        path.write_text(text)
    found_first = os.pathsep.join([str(tmp_path), *sys.path])
    ended = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, "PYTHONPATH": found_first},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(ended.stdout)
    assert len({repr(params) for params in found["qmc"]}) == len(found["qmc"])
    first, last = found["cmaes"][:10], found["cmaes"][-10:]
    assert sum(map(distance, last)) < sum(map(distance, first)) / 4
    assert found["tpe"] == proposals_of_tpe(len(found["tpe"]))
    assert "uses Optuna's public classes only" in ended.stderr


def proposals_of_tpe(count: int) -> list[Params]:
    view = StudyView(Study(Problem(PLANE, ("minimize",)), SamplerSpec(), SEED))
    found: list[Params] = []
    for number in range(count):
        found.append(view.propose([], number))
        value = distance(found[-1])
        view.update([Observation(number, found[-1], "completed", (value,), 1, value)])
    return found
