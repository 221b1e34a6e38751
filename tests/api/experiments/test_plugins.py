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
import os
from typing import Annotated
from pydantic import Field
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

class Exiting(Random):
    def proposer(self, problem, seed):
        inner = super().proposer(problem, seed)
        class Failing:
            def learn(self, observation): pass
            def propose(self, number):
                if number: raise SystemExit(3)
                return inner.propose(number)
        return Failing()

class Listing(Random):
    unsupported = ["constraints"]

class Hooked(Random):
    def gains_by_curve_score(self, problem):
        raise RuntimeError("no curves here")

class Changing(Random):
    width: Annotated[float, Field(le=float(os.environ.get("THEIR_MAX", "1")))] = 0.1

class Renewed(Random):
    def gains_by_curve_score(self, problem):
        if "THEIR_MAX" in os.environ: raise RuntimeError("a new version")
        return False
"""
BROKEN_RULES = """
from typing import Literal
import numpy as np
from search.early_stopping.decision import Verdict
from search.early_stopping.rule import StoppingRule

class Unnamed(StoppingRule):
    rule: str = "unnamed"

class Careless(StoppingRule):
    rule: Literal["careless"] = "careless"
    def milestones(self, report, history):
        return [report.step]
    def judge(self, report, milestone, history):
        return 1 / 0

class Quitting(Careless):
    rule: Literal["quitting"] = "quitting"
    def judge(self, report, milestone, history):
        raise SystemExit(3)

class Odd(StoppingRule):
    rule: Literal["odd"] = "odd"
    reached: str = "[report.step]"
    said: str = "{}"
    def milestones(self, report, history):
        return eval(self.reached)
    def judge(self, report, milestone, history):
        history.peers(milestone, 0)
        plain = dict(stop=False, rule="odd", step=report.step, milestone=milestone, value=report.value, cutoff=None)
        return Verdict(**{**plain, "compared_count": 0, "reason": "as it is", **eval(self.said)})

class Moody(Odd):
    # one of its hooks fails
    rule: Literal["moody"] = "moody"
    said: str = "dict(stop=report.step == 3, pauses=report.step == 3)"
    hook: str = ""
    answer: str = ""
    def _answer(self, hook, usual):
        return eval(self.answer) if self.hook == hook else usual
    @property
    def pauses(self):
        return self._answer("pauses", True)
    @property
    def paused_trials_lose(self):
        return self._answer("paused_trials_lose", False)
    @property
    def compares_completed(self):
        return self._answer("compares_completed", True)
    def pool_of(self, number, bracket=None):
        return self._answer("pool_of", 0)
    def pool_at(self, milestone, number, bracket=None):
        return 0
    def value_at_end(self, last_value, history):
        return self._answer("value_at_end", last_value)
"""
EXIT = "exec('raise SystemExit(3)')"
MOODY = {
    f"moody-{hook.replace('_', '-')}-{number}": {"early_stopping": {"rule": "moody", "hook": hook, "answer": answer}}
    for hook in ("pauses", "paused_trials_lose", "compares_completed", "pool_of", "value_at_end")
    for number, answer in enumerate(("1 / 0", EXIT, "'text'", "float('nan')", "2 ** 70"))
}
ODD = {
    "milestone": {"reached": "[np.int64(report.step)]"},
    "float": {"reached": "[report.step + 0.5]"},
    "twice": {"reached": "[report.step, report.step]"},
    "large": {"reached": "[2**70]"},
    "ahead": {"reached": "[100]"},
    "count": {"said": "{'compared_count': np.int64(2)}"},
    "no-reason": {"said": "{'reason': None}"},
    "surrogate": {"said": "{'reason': 'a\\ud800b'}"},
}
BETWEEN_STEPS = {
    "rule": "moody",
    "reached": "[2] if report.step == 3 else []",
    "said": "{'stop': bool(history.peers(2, -1).count())}",
}
ENTRY_POINTS = """
[paceline.samplers]
absent = not_installed_anywhere:Sampler
unfinished = broken_samplers:Unfinished
elsewhere = broken_samplers:Elsewhere
raising = broken_samplers:Raising
late = broken_samplers:Late
exiting = broken_samplers:Exiting
hooked = broken_samplers:Hooked
listing = broken_samplers:Listing
changing = broken_samplers:Changing
renewed = broken_samplers:Renewed
tpe = broken_samplers:Raising
number = math:pi

[paceline.early_stopping]
unnamed = broken_rules:Unnamed
careless = broken_rules:Careless
quitting = broken_rules:Quitting
odd = broken_rules:Odd
moody = broken_rules:Moody
round = math:pi
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Has packages that are installed in an environment of their own, as pip would do it."""
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
        **{name: {"early_stopping": {"rule": name}} for name in ("careless", "quitting")},
        **MOODY,
        "between-steps": {"early_stopping": BETWEEN_STEPS},
        **{f"odd-{name}": {"early_stopping": {"rule": "odd", **options}} for name, options in ODD.items()},
        **{name: {"search": {"sampler": name}} for name in ("late", "exiting", "hooked", "renewed")},
        "changing": {"search": {"sampler": "changing", "options": {"width": 0.9}}},
        "wrong-option": {"search": {"sampler": "annealing", "options": {"heat": 3, "temperature": 0}}},
        "wrong-rule-option": {"early_stopping": {"rule": "plateau", "width": 3}},
        "constrained": {"search": {"sampler": "annealing"}, "constraints": [{"metric": "ms", "max": 3}]},
        **{name: {"early_stopping": {"rule": name}} for name in ("unnamed", "round")},
        "own": {"search": {"sampler": "tpe"}},
        **{
            name: {"search": {"sampler": name}}
            for name in ("absent", "unfinished", "elsewhere", "raising", "number", "listing")
        },
    }
    (folder / "bodies.json").write_text(json.dumps(bodies))
    ended = subprocess.run(
        [sys.executable, "-m", "tests.api.experiments.api_with_plugins", str(folder), str(folder / "bodies.json")],
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


def test_a_rule_of_another_package_compares_between_reports_with_completed_trials(answers: dict[str, Any]) -> None:
    assert [trial["reports"] for trial in answers["between-steps"]["trials"]] == [9, 3, 3, 3, 3, 3]


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
        ("round", "early_stopping.rule", "it must be a subclass of search.early_stopping.rule.StoppingRule"),
        ("listing", "search.sampler", "its unsupported must be a frozenset"),
        ("unnamed", "early_stopping.rule", 'its field must be `rule: Literal["unnamed"] = "unnamed"`'),
        ("elsewhere", "search.sampler", "Elsewhere proposes lr: must be between 0.0001 and 1, not 7"),
        ("raising", "search.sampler", "Raising fails with RuntimeError: no licence found"),
        ("hooked", "search.sampler", "Hooked fails with RuntimeError: no curves here"),
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


@pytest.mark.parametrize("name", ["careless", "quitting"])
def test_a_rule_that_raises_decides_nothing_and_loses_no_report(answers: dict[str, Any], name: str) -> None:
    assert [trial["reports"] for trial in answers[name]["trials"]] == [9] * 6
    assert f"the rule {name} failed on trial" in answers["log"]


@pytest.mark.parametrize("name", ODD)
def test_a_rule_whose_verdicts_cannot_be_stored_loses_no_report(answers: dict[str, Any], name: str) -> None:
    assert [trial["reports"] for trial in answers[f"odd-{name}"]["trials"]] == [9] * 6


@pytest.mark.parametrize("name", MOODY)
def test_a_rule_whose_hooks_fail_stops_no_call_from_being_answered(answers: dict[str, Any], name: str) -> None:
    has_no_pool = MOODY[name]["early_stopping"]["hook"] == "pool_of"
    assert [trial["reports"] for trial in answers[name]["trials"]] == [9 if has_no_pool else 3] * 6
    after = answers["moody"][name]
    assert (after["stopped"], after["trials"], after["shown"]) == (200, 200, 200)
    assert after["replayed"] in {200, 422}
    assert not [one for one in after["statuses"] if one in {"queued", "running", "paused"}]


def test_a_preview_and_a_replay_are_refused_with_what_the_plugin_raises(answers: dict[str, Any]) -> None:
    assert [(one["path"], one["message"]) for [one] in answers["refused"]] == [
        ("search.sampler", "late fails with RuntimeError: trial 1 is one too many"),
        ("search.sampler", "exiting fails with PluginExited: it exits with 3"),
        ("early_stopping.rule", "careless fails with ZeroDivisionError: division by zero"),
        ("early_stopping.rule", "quitting fails with PluginExited: it exits with 3"),
    ]


def test_a_sampler_that_raises_ends_its_experiment_with_the_reason(answers: dict[str, Any]) -> None:
    first, second, *_ = answers["late"]["trials"]
    assert first["reports"] == 9
    assert "RuntimeError: trial 1 is one too many" in second["refused"]["detail"]
    assert "PluginExited: it exits with 3" in answers["exiting"]["trials"][1]["refused"]["detail"]
    assert [answers["after"][name]["end_reason"] for name in ("late", "exiting")] == ["search_failed"] * 2


def later_answers(answers: dict[str, Any], tmp_path: Path, environment: dict[str, str]) -> dict[str, Any]:
    """What a service with the same data answers in another environment, and submits nothing."""
    nothing, data = tmp_path / "nothing.json", tmp_path / "data"
    nothing.write_text("{}")
    shutil.copytree(answers["data"], data)
    ended = subprocess.run(
        [sys.executable, "-m", "tests.api.experiments.api_with_plugins", str(data), str(nothing)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stderr
    later: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    assert set(later["listed"]) == set(answers["listed"])
    assert set(later["changed"].values()) == {200}
    return later


def test_experiments_outlive_the_packages_that_they_name(answers: dict[str, Any], tmp_path: Path) -> None:
    later = later_answers(answers, tmp_path, {**os.environ})
    assert {"annealed", "flat", "patient"} <= set(answers["listed"])
    annealed = later["after"]["annealed"]
    assert (annealed["status"], annealed["end_reason"], annealed["changed"]) == ("running", None, 200)
    assert annealed["waiting_for"].startswith("a library: annealing cannot be used: sampler: unknown sampler")
    assert annealed["sampler"]["options"] == {"neighbourhood": 0.1}
    assert annealed["warnings"][0].endswith("until the service can use it, no trial is proposed")


def test_experiments_outlive_a_new_version_of_the_packages_that_they_name(
    answers: dict[str, Any], environment: dict[str, str], tmp_path: Path
) -> None:
    """One that refuses the stored options, and whose hook raises."""
    after = later_answers(answers, tmp_path, {**environment, "THEIR_MAX": "0.5"})["after"]
    assert after["renewed"]["warnings"][0] == "renewed fails with RuntimeError: a new version"
    assert after["renewed"]["changed"] == 200
    changing = after["changing"]
    assert (changing["status"], changing["changed"]) == ("running", 200)
    assert "changing cannot be used: options.width: " in changing["waiting_for"]


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
