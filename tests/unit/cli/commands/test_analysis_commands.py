"""Commands that analyse: importance, replay, preview, and a trial's reports, decisions and checkpoints."""

import json
from pathlib import Path

import httpx
import pytest
import yaml

from tests.unit.cli.conftest import Run, external

pytestmark = pytest.mark.slow

SPACE = {
    "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
    "momentum": {"type": "float", "low": 0.0, "high": 0.9},
}


def run_trials(url: str, experiment: str, count: int, steps: int = 3) -> list[str]:
    """Run trials whose loss is their momentum, worse from one trial to the next; return their ids."""
    trials = []
    for number in range(count):
        asked = httpx.post(f"{url}/v1/experiments/{experiment}/ask").json()
        lease = {"Authorization": f"Bearer {asked['lease']['token']}"}
        trial = f"{url}/v1/trials/{asked['trial']}"
        for step in range(steps):
            loss = asked["params"]["momentum"] + number / 100
            uri = f"/checkpoints/{number}/{step}"
            report = {"sequence": step, "metrics": {"loss": loss}, "checkpoint": uri}
            httpx.post(f"{trial}/reports", json={"reports": [report]}, headers=lease).raise_for_status()
        httpx.post(f"{trial}/finish", json={"outcome": "completed"}, headers=lease)
        trials.append(str(asked["trial"]))
    return trials


@pytest.fixture
def searched(run: Run, project: Path, url: str) -> str:
    """The name of an experiment with twelve completed trials."""
    name = str(external(run, project, space=SPACE, limits={"max_trials": 12}, search={"seed": 1})["name"])
    run_trials(url, name, 12)
    return name


def test_importance_ranks_the_parameters(run: Run, searched: str) -> None:
    found = json.loads(run("importance", searched, "--json").out)
    assert set(found["parameters"]) == {"lr", "momentum"}
    shown = run("importance", searched).out
    assert f"importance for loss by ped_anova, from {found['used_count']} of 12 completed trials" in shown
    assert f"momentum  {found['parameters']['momentum']:.3f}" in shown
    assert "by fanova" in run("importance", searched, "--evaluator", "fanova").out


def test_importance_says_why_it_cannot_be_computed(run: Run, project: Path) -> None:
    name = str(external(run, project)["name"])
    reason = json.loads(run("importance", name, "--json").out)["reason"]
    assert reason
    assert reason in run("importance", name).out.replace("\n", " ")


def test_an_unknown_evaluator_or_metric_is_a_usage_error(run: Run, searched: str) -> None:
    assert run("importance", searched, "--evaluator", "guess").code == 2
    assert run("importance", searched, "--metric", "guess").code == 2


def test_replay_shows_what_another_rule_would_have_stopped(run: Run, searched: str) -> None:
    arguments = ("replay", searched, "--rule", "median", "--set", "n_startup_trials=2")
    found = json.loads(run(*arguments, "--json").out)
    assert found["stopped_count"] > 0
    shown = run(*arguments).out
    assert f"{found['stopped_count']} of 12 trials" in shown
    assert found["stopped"][0]["id"] in shown
    assert f"{found['steps_saved']} of {found['step_count']} steps" in shown


def test_a_wrong_option_of_the_replayed_rule_is_named(run: Run, searched: str) -> None:
    ended = run("replay", searched, "--rule", "asha", "--set", "reduction=2")
    assert ended.code == 2
    assert "reduction" in ended.err


def test_preview_draws_configurations_from_a_whole_spec(run: Run, project: Path, url: str) -> None:
    spec = yaml.safe_load((project / "experiment.yaml").read_text())
    spec["space"]["optimizer"] = {"type": "categorical", "choices": ["sgd", "adamw"]}
    (project / "experiment.yaml").write_text(yaml.safe_dump(spec))
    before = httpx.get(f"{url}/v1/experiments").json()["items"]
    found = json.loads(run("preview", str(project / "experiment.yaml"), "-n", "3", "--json").out)
    assert [set(sample) for sample in found["samples"]] == [{"lr", "optimizer"}] * 3
    shown = run("preview", str(project / "experiment.yaml"), "-n", "3").out
    assert f"sampler         {found['sampler']['name']}" in shown
    assert f"early stopping  {found['early_stopping']['name']}" in shown
    assert f"optimizer={found['samples'][2]['optimizer']}" in shown
    assert httpx.get(f"{url}/v1/experiments").json()["items"] == before


def test_the_preview_of_a_grid_with_lists_does_not_call_it_infinite(run: Run, tmp_path: Path) -> None:
    spec = tmp_path / "space.yaml"
    search = {"sampler": "grid", "options": {"search_space": {"lr": [0.1, 0.2]}}}
    space = {"lr": {"type": "float", "low": 0, "high": 1}}
    spec.write_text(yaml.safe_dump({"space": space, "search": search}))
    shown = run("preview", str(spec)).out
    uncounted = "(the space has more: not finite, or too many to count)"
    assert f"configurations  those of search.options.search_space {uncounted}\n" in shown


def test_preview_shows_each_mistake(run: Run, tmp_path: Path) -> None:
    spec = tmp_path / "space.yaml"
    spec.write_text("space: {lr: {type: float, low: 0, high: 1, log: true}}")
    ended = run("preview", str(spec))
    assert ended.code == 2
    assert ended.err.startswith("error: space.lr.low: ")
    spec.write_text("space: [unclosed")
    assert run("preview", str(spec)).code == 2


def test_a_trials_reports_decisions_and_checkpoints_are_listed(run: Run, project: Path, url: str) -> None:
    rule = {"rule": "threshold", "metric": "loss", "upper": 0.95}
    changes = {"space": SPACE, "early_stopping": rule, "checkpoints": {"keep": 5}}
    name = str(external(run, project, **changes)["name"])
    (trial,) = run_trials(url, name, 1)
    reports = json.loads(run("reports", trial, "--json").out)
    assert [one["step"] for one in reports] == [1, 2, 3]
    assert f"loss={reports[0]['metrics']['loss']:.6g}" in run("reports", trial).out
    decisions = json.loads(run("decisions", trial, "--json").out)
    shown = run("decisions", trial).out
    assert all(one["reason"] in shown for one in decisions)
    checkpoints = json.loads(run("checkpoints", trial, "--json").out)
    assert [one["uri"] for one in checkpoints] == [f"/checkpoints/0/{step}" for step in (2, 1, 0)]
    assert "/checkpoints/0/2" in run("checkpoints", trial).out


def test_an_empty_list_says_so(run: Run, project: Path) -> None:
    name = str(external(run, project)["name"])
    (trial,) = json.loads(run("enqueue", name, "{params: {lr: 0.5}}", "--json").out)
    for command in ("reports", "decisions", "checkpoints"):
        assert run(command, trial["id"]).out == f"No {command}.\n"
        assert json.loads(run(command, trial["id"], "--json").out) == []


@pytest.mark.parametrize("command", ["reports", "decisions", "checkpoints"])
def test_a_trial_that_does_not_exist_is_a_usage_error(run: Run, command: str) -> None:
    assert run(command, "t-000000000000").err.startswith("error: there is no ")
