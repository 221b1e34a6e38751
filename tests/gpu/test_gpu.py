"""Trials on a real GPU: what one leaves for the next, how they share the GPU, and how they fail on it."""

import os
import signal
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import until
from tests.gpu.conftest import Trials

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

FRAMEWORKS = Path(__file__).parents[1] / "trainer" / "user_code" / "frameworks"
ACTIONS = [
    "observe",
    "reach_a_peak",
    "catch_out_of_memory",
    "change_settings",
    "train_a_model",
    "keep_memory",
    "observe",
    "break_the_gpu",
    "observe",
    "run_out_of_memory",
    "observe",
    "fail_on_the_gpu",
    "observe",
    *["compile_a_library"] * 10,
    "observe",
]


REPLACING = {"keep_memory", "break_the_gpu", "run_out_of_memory", "fail_on_the_gpu"}
"""After these the next trial has new processes."""


@pytest.fixture(scope="module")
def one_after_another(trials: Trials) -> list[dict[str, Any]]:
    """The trials; `Trials.lines("sequence")` has what they wrote."""
    return trials.run("sequence", ACTIONS)


@pytest.fixture(scope="module")
def lines(trials: Trials, one_after_another: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    assert one_after_another
    return trials.lines("sequence")


def test_only_the_trials_that_raise_an_error_fail(
    one_after_another: list[dict[str, Any]],
) -> None:
    failures = {ACTIONS[one["number"]]: one["failure_kind"] for one in one_after_another if one["status"] == "failed"}
    broken = failures.pop("break_the_gpu", "user_error")  # torch may end its process before the function is through
    assert (broken, failures) == ("user_error", {"run_out_of_memory": "out_of_memory", "fail_on_the_gpu": "user_error"})
    several = {ACTIONS[one["number"]] for one in one_after_another if len(one["attempts"]) > 1}
    assert len(several) <= 1  # the first failure in used processes is repeated in new ones
    assert several <= {"break_the_gpu", "fail_on_the_gpu"}
    (failed,) = [trial for trial in one_after_another if ACTIONS[trial["number"]] == "fail_on_the_gpu"]
    assert "CUDA error: device-side assert" in str(failed["attempts"])


def test_each_trial_has_the_gpu_and_a_group_with_nccl(lines: dict[int, dict[str, Any]]) -> None:
    assert {line["group"] for line in lines.values()} == {"nccl"}
    assert {line["sum"] for line in lines.values()} == {1.0}
    assert all(line["device"] for line in lines.values())


def test_processes_stay_warm_unless_a_trial_fails_or_spoils_its_gpu(lines: dict[int, dict[str, Any]]) -> None:
    for (number, line), (later, following) in pairwise(sorted(lines.items())):
        is_replaced = not REPLACING.isdisjoint(ACTIONS[number:later])
        assert (line["pid"] != following["pid"]) == is_replaced, f"trials {number} and {later}"


def test_a_trial_finds_the_gpu_and_torch_as_in_a_new_process(lines: dict[int, dict[str, Any]]) -> None:
    for number, line in lines.items():
        about = f"trial {number} after {ACTIONS[number - 1]}"
        assert line["allocated_gb"] < 0.26, about
        assert line["peak_gb"] < 0.26, about
        assert line["used_gb"] < lines[0]["used_gb"] + 1, about
        assert [line[name] for name in ("fraction", "precision", "benchmark")] == [1.0, "highest", False], about
    assert len({line["random"] for line in lines.values()}) == len(lines), "drawn at random"


def test_a_library_is_compiled_for_every_trial(lines: dict[int, dict[str, Any]]) -> None:
    assert [line["graphs"] > 0 for line in lines.values() if line["do"] == "compile_a_library"] == [True] * 10


def test_a_killed_worker_frees_its_memory_and_the_trial_resumes_on_the_gpu(trials: Trials) -> None:
    trials.submit("killed", ["resume_on_the_gpu"])
    pid_file = trials.record_of("killed").with_suffix(".pid")
    until(pid_file.exists, "the trial holds the GPU")
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    (trial,) = trials.wait("killed")
    assert (trial["status"], len(trial["attempts"])) == ("completed", 2)
    line = trials.lines("killed")[0]
    assert line["weight"] == pytest.approx(3)
    assert line["used_gb"] < 5


def test_two_trials_share_a_gpu(trials: Trials) -> None:
    half = {"resources_per_worker": {"CPU": 1, "GPU": 0.5}}
    done = trials.run("halves", ["compute"] * 2, scaling=half, parallelism=2)
    assert [trial["status"] for trial in done] == ["completed"] * 2
    first, second = trials.lines("halves").values()
    assert max(first["began"], second["began"]) < min(first["ended"], second["ended"])


def test_workers_of_one_trial_cannot_share_a_gpu_with_nccl_and_can_with_gloo(trials: Trials) -> None:
    halves = {"num_workers": 2, "resources_per_worker": {"CPU": 1, "GPU": 0.5}}
    (refused,) = trials.run("nccl", ["observe"], scaling=halves)
    assert refused["status"] == "failed"
    assert "Duplicate GPU detected" in str(refused["attempts"])
    (done,) = trials.run("gloo", ["observe"], scaling=halves, trainer={"torch_config": {"backend": "gloo"}})
    assert done["status"] == "completed", done["attempts"]
    assert trials.lines("gloo")[0]["sum"] == 2.0


def test_mlflow_shows_how_busy_the_gpu_is(trials: Trials) -> None:
    (trial,) = trials.run("busy", ["compute"])
    api = f"{trials.stack.mlflow_url}/api/2.0/mlflow"
    found = httpx.post(f"{api}/experiments/search", json={"max_results": 1000}).json()["experiments"]
    ids = [one["experiment_id"] for one in found]

    def busiest() -> float:
        runs = httpx.post(f"{api}/runs/search", json={"experiment_ids": ids, "max_results": 1000}).json()["runs"]
        (run,) = [one for one in runs if trial["id"] in str(one["data"]["tags"]) and "parentRunId" in str(one)]
        name = {"run_id": run["info"]["run_id"], "metric_key": "system/gpu_0_utilization_percentage"}
        history = httpx.get(f"{api}/metrics/get-history", params=name).json().get("metrics", [])
        return max((float(one["value"]) for one in history), default=0.0)

    until(lambda: busiest() > 50, "MLflow shows a busy GPU", 60)


@pytest.mark.parametrize(
    ("kind", "needs"),
    [("jax", "jax_cuda13_plugin"), ("transformers", "transformers"), ("lightning", "lightning"), ("torch", "torch")],
)
def test_trials_of_every_kind_run_on_the_gpu(trials: Trials, kind: str, needs: str, tmp_path: Path) -> None:
    if find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    code = tmp_path / "train.py"
    code.write_text((FRAMEWORKS / f"with_{kind}.py").read_text().replace("use_cpu=True", "use_cpu=False"))
    fields = {"config": {"record": str(tmp_path / "pids"), "lr": 0.1, "seed": 0, "precision": "no"}}
    done = trials.run(f"kind-{kind}", ["observe"] * 2, code=code, trainer={"kind": kind}, **fields)
    assert [trial["status"] for trial in done] == ["completed"] * 2, [trial["attempts"] for trial in done]


def test_a_trial_can_ask_for_the_type_of_gpu_that_the_agent_offers(trials: Trials) -> None:
    (agent,) = httpx.get(f"{trials.stack.url}/v1/agents").json()["items"]
    (kind,) = {name for name in str(agent).replace('"', "'").split("'") if name.startswith("accelerator_type:")}
    typed = {"accelerator_type": kind.removeprefix("accelerator_type:")}
    (done,) = trials.run("typed", ["observe"], scaling=typed)
    assert done["status"] == "completed"
