"""Heavy libraries are imported when a sampler that needs them is built, or ahead, not during a proposal."""

import subprocess
import sys
from typing import Any

import pytest

from search.samplers import SAMPLERS
from search.samplers.registry import OWN_SAMPLERS
from tests.conformance.sampler_problems import OPTIONS

PROPOSING = """
import sys

from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Space
from search.study import Study, StudyView

space = Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}, "n": {"type": "int", "low": 0, "high": 9}})
for heavy in ("scipy.stats", "torch", "sklearn", "cmaes"):
    assert heavy not in sys.modules, heavy
for name, options in SAMPLERS:
    view = StudyView(Study(Problem(space, ("minimize",)), SamplerSpec(sampler=name, options=options), 7))
    view.import_library()
    before = set(sys.modules)
    for number in range(7):
        params = view.propose([], number)
        view.update([Observation(number, params, "completed", (params["x"],), 1, params["x"])])
    later = [one for one in sys.modules if one not in before]
    print(name, [one for one in later if one.startswith(("scipy", "torch", "optuna", "cmaes"))])
"""
NOT_HERE = {"auto", "grid", "brute_force"}
"""`auto` chooses one of the others; `grid` and `brute_force` do not suit a continuous space."""


def samplers() -> list[tuple[str, dict[str, Any]]]:
    """All others with options that make them learn from few trials, those last that import a library ahead."""
    names = sorted(OWN_SAMPLERS.keys() - NOT_HERE, key=lambda name: (SAMPLERS[name].library is not None, name))
    return [(name, OPTIONS.get(name, [{}])[0]) for name in names]


@pytest.mark.slow
def test_no_proposal_imports_a_library_that_can_be_imported_ahead() -> None:
    code = PROPOSING.replace("SAMPLERS", repr(samplers()))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name} []" for name, _ in samplers()]
