"""Commands that act on a live experiment: pause, resume, stop, cancel, delete."""

import json
from pathlib import Path

import httpx
import pytest

from service.stack.ports import free_port
from tests.unit.cli.conftest import Run, external, finish_one, service_in_a_thread, submitted


def test_a_paused_experiment_resumes(run: Run, project: Path, url: str) -> None:
    name = str(submitted(run, project)["name"])
    assert run("pause", name).out == f"{name} is paused. To continue: paceline resume {name}\n"
    assert httpx.get(f"{url}/v1/experiments/{name}").json()["status"] == "paused"
    assert run("resume", name).out == f"{name} is running.\n"
    assert json.loads(run("pause", name, "--json").out)["status"] == "paused"
    assert json.loads(run("resume", name, "--json").out)["status"] == "running"


def test_a_cancelled_experiment_kills_its_running_trials(run: Run, project: Path, url: str) -> None:
    name = str(external(run, project)["name"])
    asked = httpx.post(f"{url}/v1/experiments/{name}/ask").json()
    assert run("cancel", name).out == f"{name} is being cancelled.\n"
    lease = {"Authorization": f"Bearer {asked['lease']['token']}"}
    answer = httpx.post(f"{url}/v1/trials/{asked['trial']}/heartbeat", headers=lease).json()
    assert answer["decision"] == "kill"


def test_an_experiment_without_running_trials_ends_immediately(run: Run, project: Path) -> None:
    name = str(external(run, project)["name"])
    assert run("stop", name).out == f"{name} has ended: stopped.\n"
    other = str(external(run, project)["name"])
    assert json.loads(run("cancel", other, "--json").out)["status"] == "stopped"


def test_an_experiment_may_be_named_as_trials_are(run: Run, project: Path) -> None:
    name = str(external(run, project, name="t-0")["name"])
    assert run("stop", name).out == "t-0 has ended: stopped.\n"


@pytest.mark.parametrize("ending", ["/trials", "#a", "?limit=1", "/../", " "])
def test_a_name_is_no_path(run: Run, project: Path, ending: str) -> None:
    name = f"{external(run, project)['name']}{ending}"
    for command in ("show", "pause", "cancel", "delete", "best"):
        ended = run(command, name)
        assert (ended.code, ended.out) == (2, "")
        assert "there is no" in ended.err


def test_a_database_that_does_not_answer_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_DATABASE_URL", f"postgresql+psycopg://me:hunter2@127.0.0.1:{free_port()}/x")
    for command in (["token", "ls"], ["db", "downgrade", "0001"]):
        ended = run(*command)
        assert ended.code == 1
        assert "does not answer: connection failed" in ended.err
        assert "see PACELINE_DATABASE_URL" in ended.err
        assert "hunter2" not in ended.err


def test_an_ended_experiment_is_deleted_and_its_name_is_free_again(run: Run, project: Path, url: str) -> None:
    name = str(external(run, project, limits={"max_trials": 1})["name"])
    finish_one(url, name, {"outcome": "completed"})
    assert run("delete", name).out == f"{name} is deleted; the name is free again.\n"
    assert httpx.get(f"{url}/v1/experiments/{name}").status_code == 404
    ended = run("delete", name)
    assert (ended.code, ended.err) == (2, f"error: there is no experiment {name!r}; `paceline ls` lists them\n")


def test_a_live_experiment_is_not_deleted(run: Run, project: Path, url: str) -> None:
    name = str(external(run, project)["name"])
    ended = run("delete", name)
    assert ended.code == 2
    assert "is running; cancel it first" in ended.err
    assert httpx.get(f"{url}/v1/experiments/{name}").status_code == 200


def test_a_stopped_experiment_cannot_be_paused_but_resumed(run: Run, project: Path) -> None:
    name = str(external(run, project)["name"])
    run("stop", name)
    ended = run("pause", name)
    assert ended.code == 2
    assert f"experiment {name} is stopped (user); to continue it, resume it: `paceline resume {name}`" in ended.err
    assert run("resume", name).out == f"{name} is running.\n"


@pytest.mark.parametrize("command", ["pause", "resume", "cancel", "delete"])
def test_an_experiment_that_does_not_exist_is_a_usage_error(run: Run, command: str) -> None:
    ended = run(command, "nothing")
    assert ended.code == 2
    assert ended.err.startswith("error: there is no ")


def test_a_taken_name_comes_with_the_commands_to_use_another_or_to_free_it(run: Run, project: Path) -> None:
    name = str(submitted(run, project)["name"])
    spec = project / "experiment.yaml"
    ended = run("submit", str(spec))
    assert ended.code == 2
    assert f"an experiment named {name!r} exists already" in ended.err
    assert (
        f"hint: to submit it under another name: paceline submit {spec} --name {name}-2, or --unique for a free one\n"
        in ended.err
    )
    assert f"hint: to delete the earlier one, once it has ended: paceline delete {name}\n" in ended.err
    assert submitted(run, project, "--name", f"{name}-2")["name"] == f"{name}-2"


@pytest.mark.slow
def test_the_services_setting_limits_the_size_of_a_folder(
    run: Run, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (project / "weights.bin").write_bytes(bytes(30_000_000) + bytes(range(256)) * 1000)
    with service_in_a_thread(tmp_path_factory.mktemp("small"), PACELINE_MAX_PACKAGE_BYTES="10000") as small:
        ended = run("submit", str(project / "experiment.yaml"), "--url", small)
    assert ended.code == 2
    assert "a package may have at most 0.01 MB" in ended.err
    assert f"hint: the largest files in {project}: weights.bin (30.3 MB), " in ended.err
    assert "--code PATH" in ended.err
    with service_in_a_thread(tmp_path_factory.mktemp("large"), PACELINE_MAX_PACKAGE_BYTES="100000000") as large:
        submitted(run, project, "--url", large)
