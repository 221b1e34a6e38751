"""Heavy libraries are imported when a sampler that needs them is built, or ahead, not during a proposal.

And one thread at a time: by `import_modules`, not by what else is called then, as a check of Optuna's internals.
"""

import subprocess
import sys
from typing import Any

import pytest

from search.samplers.registry import OWN_SAMPLERS
from tests.conformance.sampler_problems import OPTIONS

PROPOSING = """
import sys

from search import thread_safe_import
from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Space
from search.study import Study, StudyView

space = Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}, "n": {"type": "int", "low": 0, "high": 9}})


class UnlockedImports(list):  # finds no module, and notes those of heavy libraries that are imported without the lock
    def find_spec(self, name, *_):
        if name.startswith(("scipy.", "torch.", "cmaes.")) and not thread_safe_import._lock.locked():
            self.append(name)


unlocked = UnlockedImports()
sys.meta_path.insert(0, unlocked)
for heavy in (*HEAVY, "sklearn"):
    assert heavy not in sys.modules, heavy
for name, options in SAMPLERS:
    missing = {one for one in HEAVY if one not in sys.modules}
    view = StudyView(Study(Problem(space, ("minimize",)), SamplerSpec(sampler=name, options=options), 7))
    view.import_library()
    before = set(sys.modules)
    ahead = [one for one in HEAVY if one in missing & before]
    for number in range(7):
        params = view.propose([], number)
        view.update([Observation(number, params, "completed", (params["x"],), 1, params["x"])])
    later = [one for one in sys.modules if one not in before]
    print(name, ahead, unlocked, [one for one in later if one.startswith(("scipy", "torch", "optuna", "cmaes"))])
    unlocked.clear()
"""
LIBRARIES = {"tpe": "scipy.special", "qmc": "scipy.stats", "cmaes": "cmaes", "gp": "torch"}
"""What samplers import ahead, by sampler. Each imports in addition what those before it import."""
NOT_HERE = {"auto", "grid", "brute_force"}
"""`auto` chooses one of the others; `grid` and `brute_force` do not suit a continuous space."""


def samplers() -> list[tuple[str, dict[str, Any]]]:
    """All others with options that make them learn from few trials, in an order in which no import hides another."""
    others = sorted(OWN_SAMPLERS.keys() - NOT_HERE - LIBRARIES.keys())
    return [(name, OPTIONS.get(name, [{}])[0]) for name in (*others, *LIBRARIES)]


@pytest.mark.slow
def test_no_proposal_imports_a_library_that_can_be_imported_ahead_by_one_thread_at_a_time() -> None:
    code = PROPOSING.replace("SAMPLERS", repr(samplers())).replace("HEAVY", repr(tuple(LIBRARIES.values())))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ahead = {name: [library] for name, library in LIBRARIES.items()}
    assert done.stdout.splitlines() == [f"{name} {ahead.get(name, [])} [] []" for name, _ in samplers()]
