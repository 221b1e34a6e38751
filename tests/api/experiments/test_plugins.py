"""Samplers and rules of other packages: found by their entry points, validated as ours, harmless when broken."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # a service with installed packages takes seconds to start
ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "own_sampler"
BROKEN_SAMPLERS = """
from search.samplers.random import Random
from search.samplers.sampler import Sampler

class Unfinished(Sampler):
    pass

class Elsewhere(Random):
    def proposer(self, problem, seed):
        inner = super().proposer(problem, seed)
        class Outside:
            def learn(self, observation): pass
            def propose(self, number): return {**inner.propose(number), "lr": 7.0}
        return Outside()

class Raising(Random):
    def proposer(self, problem, seed):
        raise RuntimeError("no licence found")

class Late(Random):
    def proposer(self, problem, seed):
        inner = super().proposer(problem, seed)
        class Failing:
            def learn(self, observation): pass
            def propose(self, number):
                if number: raise RuntimeError("trial 1 is one too many")
                return inner.propose(number)
        return Failing()
"""
BROKEN_RULES = """
from typing import Literal
from search.early_stopping.rule import StoppingRule

class Unnamed(StoppingRule):
    rule: str = "unnamed"

class Careless(StoppingRule):
    rule: Literal["careless"] = "careless"
    def milestones(self, report, history):
        return [report.step]
    def judge(self, report, milestone, history):
        return 1 / 0
"""
ENTRY_POINTS = """
[paceline.samplers]
absent = not_installed_anywhere:Sampler
unfinished = broken_samplers:Unfinished
elsewhere = broken_samplers:Elsewhere
raising = broken_samplers:Raising
late = broken_samplers:Late
tpe = broken_samplers:Raising
number = math:pi

[paceline.early_stopping]
unnamed = broken_rules:Unnamed
careless = broken_rules:Careless
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With packages that are installed in an environment of their own, as pip would do it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "broken_samplers.py").write_text(BROKEN_SAMPLERS)
    (folder / "broken_rules.py").write_text(BROKEN_RULES)
    installed = folder / "their_plugins-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: their-plugins\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(ENTRY_POINTS)
    unpack_wheel(tmp_path_factory.mktemp("source"), folder)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT)))}


def unpack_wheel(source: Path, folder: Path) -> None:
    """Install the example as `pip install` does it, not as an editable package."""
    shutil.copytree(EXAMPLE, source, dirs_exist_ok=True)
    build = "import setuptools.build_meta as backend; backend.build_wheel('.')"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (wheel,) = source.glob("*.whl")
    shutil.unpack_archive(wheel, folder, "zip")


@pytest.fixture(scope="module")
def answers(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a service with the packages answers to these specs, and its log."""
    folder = tmp_path_factory.mktemp("data")
    bodies = {
        "annealed": {"search": {"sampler": "annealing", "seed": 7, "options": {"neighbourhood": 0.1}}},
        "flat": {"early_stopping": {"rule": "plateau", "steps": 2}},
        "patient": {"early_stopping": {"rule": "patient", "patience": 0, "wrapped_rule": {"rule": "plateau"}}},
        "careless": {"early_stopping": {"rule": "careless"}},
        "late": {"search": {"sampler": "late"}},
        "wrong-option": {"search": {"sampler": "annealing", "options": {"heat": 3, "temperature": 0}}},
        "wrong-rule-option": {"early_stopping": {"rule": "plateau", "width": 3}},
        "constrained": {"search": {"sampler": "annealing"}, "constraints": [{"metric": "ms", "max": 3}]},
        "unnamed": {"early_stopping": {"rule": "unnamed"}},
        "own": {"search": {"sampler": "tpe"}},
        **{name: {"search": {"sampler": name}} for name in ("absent", "unfinished", "elsewhere", "raising", "number")},
    }
    (folder / "bodies.json").write_text(json.dumps(bodies))
    ended = subprocess.run(
        [sys.executable, "-m", "tests.api.experiments.plugged_in", str(folder), str(folder / "bodies.json")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stderr
    return {**json.loads(ended.stdout.splitlines()[-1]), "log": ended.stderr, "data": str(folder)}


def test_a_sampler_of_another_package_proposes_and_its_options_are_shown(answers: dict[str, Any]) -> None:
    made = answers["annealed"]
    assert made["sampler"] == {
        "name": "annealing",
        "options": {"temperature": 100.0, "neighbourhood": 0.1},
        "why": None,
    }
    params = [trial["params"] for trial in made["trials"]]
    assert len({repr(one) for one in params}) == len(params) == 6
    assert answers["previewed"]["sampler"]["name"] == "annealing"
    assert len(answers["previewed"]["samples"]) == 3


def test_a_rule_of_another_package_stops_trials_also_within_patient(answers: dict[str, Any]) -> None:
    assert [trial["reports"] for trial in answers["flat"]["trials"]] == [3] * 6
    assert "loss has changed by 0 in the last 2 steps up to 3" in answers["flat"]["trials"][0]["reason"]
    assert answers["patient"]["spec"]["early_stopping"]["wrapped_rule"]["rule"] == "plateau"


@pytest.mark.parametrize(
    ("name", "path", "message"),
    [
        ("wrong-option", "search.options.heat", "Unknown option; the options of annealing: temperature, neighbourhood"),
        ("wrong-option", "search.options.temperature", "should be greater than 0"),
        ("wrong-rule-option", "early_stopping.width", "Unknown option; the options of plateau: "),
        ("constrained", "search.sampler", "Annealing does not support constraints; these samplers do: auto, tpe"),
        ("absent", "search.sampler", "Not_installed_anywhere:Sampler of their-plugins cannot be used: ModuleNotFound"),
        (
            "unfinished",
            "search.sampler",
            "Broken_samplers:Unfinished of their-plugins cannot be used: it must implement",
        ),
        ("number", "search.sampler", "it must be a subclass of search.samplers.sampler.Sampler"),
        ("unnamed", "early_stopping.rule", 'its field must be `rule: Literal["unnamed"] = "unnamed"`'),
        ("elsewhere", "search.sampler", "Elsewhere proposes lr: must be between 0.0001 and 1, not 7"),
        ("raising", "search.sampler", "Raising fails with RuntimeError: no licence found"),
    ],
)
def test_a_mistake_is_answered_like_one_with_a_sampler_of_the_service(
    answers: dict[str, Any], name: str, path: str, message: str
) -> None:
    errors = {error["path"]: error["message"] for error in answers[name]["errors"]}
    assert message.lower() in errors[path].lower()


def test_a_broken_plugin_is_logged_and_the_others_and_the_services_own_still_work(answers: dict[str, Any]) -> None:
    for name in ("absent", "unfinished", "number", "unnamed"):
        assert f"{name!r}:" in answers["log"]
    assert "the name 'tpe' is taken" in answers["log"]
    assert answers["own"]["sampler"]["options"]["n_ei_candidates"] == 24
    assert len(answers["own"]["trials"]) == 6


def test_a_rule_that_raises_decides_nothing_and_loses_no_report(answers: dict[str, Any]) -> None:
    assert [trial["reports"] for trial in answers["careless"]["trials"]] == [9] * 6
    assert "the rule careless failed on trial" in answers["log"]


def test_a_sampler_that_raises_ends_its_experiment_with_the_reason(answers: dict[str, Any]) -> None:
    first, second, *_ = answers["late"]["trials"]
    assert first["reports"] == 9
    assert "RuntimeError: trial 1 is one too many" in second["refused"]["detail"]


def test_experiments_outlive_the_packages_that_they_name(answers: dict[str, Any], tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.json"
    nothing.write_text("{}")
    ended = subprocess.run(
        [sys.executable, "-m", "tests.api.experiments.plugged_in", answers["data"], str(nothing)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stderr
    later = json.loads(ended.stdout.splitlines()[-1])
    assert set(later["listed"]) == set(answers["listed"])
    assert {"annealed", "flat", "patient"} <= set(answers["listed"])
    assert set(later["changed"].values()) == {200}


def test_the_conformance_tests_run_on_a_sampler_and_a_rule_of_another_package(environment: dict[str, str]) -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=quick", "tests/conformance"]
    ended = subprocess.run(
        [sys.executable, *command, "-k", "annealing or plateau"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stdout
    assert " passed" in ended.stdout
    assert "failed" not in ended.stdout
