"""Commands that show and change experiments and trials."""

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
import yaml
from rich.console import Console

from service.cli.all_commands import app
from service.cli.client.client import Client
from service.cli.terminal import console, terminal_tables, watch
from service.stack.ports import free_port
from tests.unit.cli.canned_service import Answer, answer, answering
from tests.unit.cli.conftest import SPEC, Run, external, finish_one, open_to_others, serve, serving, submitted

pytestmark = pytest.mark.slow


def test_experiments_are_listed_and_shown(run: Run, project: Path) -> None:
    name = str(submitted(run, project)["name"])
    assert name in run("ls").out
    assert name in {experiment["name"] for experiment in json.loads(run("ls", "--json").out)}
    shown = run("show", name)
    assert name in shown.out
    assert "an agent: none is connected" in shown.out
    assert json.loads(run("show", name, "--json").out)["trials"] == []


def test_an_unknown_name_exits_with_code_2(run: Run) -> None:
    for arguments in (["show", "nothing"], ["best", "nothing"], ["stop", "nothing"], ["logs", "t-000000000000"]):
        ended = run(*arguments)
        assert ended.code == 2
        assert ended.err.startswith("error: there is no ")


@pytest.mark.parametrize("name", ["", ".", "..", "\udcff"])
@pytest.mark.parametrize(
    "command",
    [["show"], ["watch"], ["delete", "--yes"], ["stop"], ["best"], ["change", "--set", "priority=1"], ["fetch"]],
)
def test_what_can_be_no_name_is_refused_before_the_service_is_asked(run: Run, command: list[str], name: str) -> None:
    with answering(answer({})) as (address, requests):
        ended = run(*command, name, "--url", address)
    assert ended.err.startswith(f"error: {name!r} is not a name or an id")
    assert ended.code == 2
    assert requests == []


def test_a_command_of_a_trial_says_where_to_find_its_id(run: Run, project: Path) -> None:
    name = str(submitted(run, project)["name"])
    for command in ("logs", "reports", "decisions", "checkpoints", "retry"):
        ended = run(command, name)
        assert ended.code == 2
        assert ended.err.startswith(
            f"error: {name!r} must be a trial: its id (t-…), or NAME#NUMBER; `paceline show NAME` lists"
        )


def test_an_ended_experiment_without_a_completed_trial_has_no_best_one(run: Run, project: Path) -> None:
    name = str(external(run, project)["name"])
    assert run("best", name).err == f"error: no trial of experiment {name} has completed yet\n"
    run("stop", name)
    assert run("best", name).err == f"error: no trial of experiment {name} has completed\n"


def test_a_single_trial_cannot_be_cancelled(run: Run) -> None:
    ended = run("stop", "t-000000000000", "--cancel")
    assert ended.code == 2
    assert "applies to experiments only" in ended.err


def test_watching_a_stopped_experiment_exits_with_0(run: Run, project: Path) -> None:
    name = str(submitted(run, project)["name"])
    assert run("stop", name).code == 0
    watched = run("watch", name)
    assert watched.code == 0
    assert f"{name} stopped (user)" in watched.out


def test_the_answer_to_a_submission_is_all_of_the_output_also_when_it_is_watched(
    run: Run, project: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_and_watch(client: Client, name: str, output: Console) -> Any:
        httpx.post(f"{url}/v1/experiments/{name}/stop").raise_for_status()
        return watch_experiment(client, name, output)

    watch_experiment = watch.watch_experiment
    monkeypatch.setattr(watch, "watch_experiment", stop_and_watch)
    name = f"watched-{time.monotonic_ns()}"
    ended = run("submit", str(project / "experiment.yaml"), "--name", name, "--watch", "--json")
    assert json.loads(ended.out)["name"] == name
    assert f"{name} stopped (user)" in ended.err


def test_best_with_several_objectives_is_the_pareto_front(run: Run, project: Path, url: str) -> None:
    spec = yaml.safe_load((project / "experiment.yaml").read_text())
    several = [*spec["objectives"], {"metric": "accuracy", "direction": "maximize"}]
    changes = {"objectives": several, "trainer": {"kind": "external"}, "limits": {"max_trials": 3}}
    (project / "experiment.yaml").write_text(yaml.safe_dump(spec | changes))
    name = str(submitted(run, project)["name"])
    for loss, accuracy in [(0.5, 0.125), (0.75, 0.625), (0.875, 0.5)]:
        given = httpx.post(f"{url}/v1/experiments/{name}/ask").json()
        headers = {"Authorization": f"Bearer {given['lease']['token']}"}
        report = {"sequence": 0, "metrics": {"loss": loss, "accuracy": accuracy}}
        httpx.post(f"{url}/v1/trials/{given['trial']}/reports", headers=headers, json={"reports": [report]})
        httpx.post(f"{url}/v1/trials/{given['trial']}/finish", headers=headers, json={"outcome": "completed"})
    shown = run("best", name).out
    assert "loss (minimize), accuracy (maximize): 2 trials" in shown
    assert "0.5, 0.125" in shown
    assert "0.75, 0.625" in shown
    assert "0.875" not in shown
    assert "Pareto front" in run("watch", name).out
    assert "0.875, 0.5" in run("show", name).out


def test_show_says_what_is_wrong_with_the_mirror() -> None:
    one = {"name": "mine", "id": "x-1", "status": "running", "mlflow_error": "MLflow answers 403 [forbidden]"}
    with console.out.capture() as shown:
        console.out.print(terminal_tables.experiment(one, [], datetime.now(UTC)))
    assert "MLflow answers 403 [forbidden]" in shown.get()


def test_show_and_watch_say_where_the_time_went(run: Run, project: Path, url: str) -> None:
    name = str(external(run, project, limits={"max_trials": 1})["name"])
    assert "worker-seconds" not in run("show", name).out
    finish_one(url, name, {"outcome": "completed", "phases": {"training": 100, "reporting": 25}})
    assert "training 80 %, reporting 20 %" in run("show", name).out
    assert "training 80 %, reporting 20 %" in run("watch", name).out


def test_best_shows_the_confirmed_configurations(run: Run, project: Path, url: str) -> None:
    confirm = {"top": 2, "seeds": 2}
    name = str(external(run, project, limits={"max_trials": 6}, confirm=confirm)["name"])
    for _ in range(6):
        finish_one(url, name, {"outcome": "completed"})
    shown = run("best", name).out
    assert "no value varies with the seed: does the training function use config.seed?" in shown
    assert re.search(r"^trial +id +mean +standard error +n +failed +chosen for", shown, re.MULTILINE)
    assert re.search(r"^0 +t-[0-9a-f]+ +0\.5 +0 +2 +0 +0\.5", shown, re.MULTILINE)


def test_watch_best_and_logs_show_trials_run_over_http(run: Run, project: Path, url: str) -> None:
    spec = SPEC | {"name": f"external-{time.monotonic_ns()}", "trainer": {"kind": "external"}}
    (project / "experiment.yaml").write_text(yaml.safe_dump(spec))
    experiment = submitted(run, project)
    for loss in (0.5, 0.25):
        asked = httpx.post(f"{url}/v1/experiments/{experiment['name']}/ask").json()
        lease = {"Authorization": f"Bearer {asked['lease']['token']}"}
        trial = f"{url}/v1/trials/{asked['trial']}"
        reports = {"reports": [{"sequence": 0, "metrics": {"loss": loss}}]}
        httpx.post(f"{trial}/reports", json=reports, headers=lease).raise_for_status()
        httpx.post(f"{trial}/logs", json={"rank": 0, "offset": 0, "text": "hello\n"}, headers=lease).raise_for_status()
        httpx.post(f"{trial}/finish", json={"outcome": "completed"}, headers=lease).raise_for_status()

    watched = run("watch", str(experiment["name"]))
    assert watched.code == 0
    assert "trial 1 completed at step 1: loss 0.25" in watched.out
    assert "2 completed" in watched.out
    best = json.loads(run("best", str(experiment["name"]), "--json").out)
    assert (best["number"], best["values"], best["value"]) == (1, {"loss": 0.25}, 0.25)
    assert "0.25" in run("best", str(experiment["name"])).out
    assert "hello" in run("logs", best["id"]).out
    assert "hello" in run("logs", best["id"], "--follow", "--rank", "0").out


def test_a_raised_limit_resumes_an_ended_experiment(run: Run, project: Path, url: str) -> None:
    experiment = external(run, project, limits={"max_trials": 1})
    finish_one(url, str(experiment["name"]), {"outcome": "completed"})
    assert httpx.get(f"{url}/v1/experiments/{experiment['name']}").json()["status"] == "completed"
    changed = run("change", str(experiment["name"]), "--set", "limits.max_trials=2", "--set", "tags.team=vision")
    values = 'limits.max_trials: 2\ntags.team: "vision"\n'
    assert (changed.code, changed.out) == (0, f"{experiment['name']} is changed; it is running.\n{values}")
    spec = httpx.get(f"{url}/v1/experiments/{experiment['name']}").json()["spec"]
    assert (spec["limits"]["max_trials"], spec["tags"]) == (2, {"team": "vision"})
    repeated = run("change", str(experiment["name"]), "--set", "limits.max_trials=2")
    assert repeated.out == f"{experiment['name']} has these values already; it is running.\nlimits.max_trials: 2\n"
    removed = run("change", str(experiment["name"]), "--set", "limits.parallelism=null", "--set", "tags.team=null")
    assert removed.out.splitlines()[1:] == ["limits.parallelism: 1", "tags.team: null"]


def test_any_number_of_trials_may_run_until_a_time_limit(run: Run, project: Path, url: str) -> None:
    text = yaml.safe_dump(SPEC | {"name": f"any-{time.monotonic_ns()}", "trainer": {"kind": "external"}})
    (project / "experiment.yaml").write_text(text)
    settings = ["--set", "limits.max_trials=null", "--set", "limits.max_seconds=3600"]
    refused = run("submit", str(project / "experiment.yaml"), *settings[:2])
    assert (refused.code, "limits.max_trials: null means any number of trials" in refused.err) == (2, True)
    submitted = run("submit", str(project / "experiment.yaml"), *settings)
    name = submitted.out.split()[0]
    assert "running: any number of trials, 1 at a time" in submitted.out
    finish_one(url, name, {"outcome": "completed"})
    [row] = [line for line in run("ls").out.splitlines() if line.startswith(name)]
    assert row.split()[2:4] == ["running", "1"]
    assert run("show", name).code == 0
    changed = run("change", name, "--set", "limits.max_trials=1")
    assert "limits.max_trials: 1" in changed.out
    assert "1 completed" in run("watch", name).out
    again = run("change", name, "--set", "limits.max_trials=null")
    assert again.out == f"{name} is changed; it is running.\nlimits.max_trials: null\n"


def test_a_refused_change_names_each_mistake(run: Run, project: Path) -> None:
    name = str(submitted(run, project)["name"])
    ended = run("change", name, "--set", "limits.max_trials=none", "--set", "trainer.kind=external")
    assert ended.code == 2
    assert sorted(line.split(":")[1] for line in ended.err.splitlines()) == [" limits.max_trials", " trainer"]
    ended = run("change", name, "--set", "priority")
    assert (ended.code, ended.err.count("FIELD=VALUE")) == (2, 1)


def test_configurations_are_enqueued_from_the_argument_or_a_file(run: Run, project: Path) -> None:
    name = str(external(run, project, limits={"max_trials": 3})["name"])
    assert "lr=0.5" in run("enqueue", name, "{params: {lr: 0.5}}").out
    (project / "more.yaml").write_text("[{params: {lr: 0.25}}, {params: {lr: 0.125}}]")
    trials = json.loads(run("enqueue", name, str(project / "more.yaml"), "--json").out)
    assert [(one["number"], one["params"], one["status"]) for one in trials] == [
        (1, {"lr": 0.25}, "queued"),
        (2, {"lr": 0.125}, "queued"),
    ]
    ended = run("enqueue", name, str(project / "absent.yaml"))
    assert ended.code == 2
    assert "must be a file, or JSON as in" in ended.err
    full = run("enqueue", name, '{"params": {"lr": 0.5}}')
    assert f"raise the limit first: `paceline change {name} --set limits.max_trials=4`" in full.err


def test_a_failed_experiment_makes_watch_fail(run: Run, project: Path, url: str) -> None:
    spec = SPEC | {
        "name": f"failing-{time.monotonic_ns()}",
        "trainer": {"kind": "external"},
        "failures": {"max_failed_trials": 0},
    }
    (project / "experiment.yaml").write_text(yaml.safe_dump(spec))
    experiment = submitted(run, project)
    asked = httpx.post(f"{url}/v1/experiments/{experiment['name']}/ask").json()
    error = {"kind": "user_error", "message": "ValueError: no [luck]"}
    httpx.post(
        f"{url}/v1/trials/{asked['trial']}/finish",
        json={"outcome": "failed", "error": error},
        headers={"Authorization": f"Bearer {asked['lease']['token']}"},
    ).raise_for_status()

    watched = run("watch", str(experiment["name"]))
    assert watched.code == 1
    assert "trial 0 failed: ValueError: no [luck]" in watched.out


def test_the_best_checkpoint_is_marked_and_is_that_of_the_best_trial(run: Run, project: Path, url: str) -> None:
    objective = {"metric": "loss", "direction": "minimize", "report": "best"}
    name = str(external(run, project, objectives=[objective])["name"])
    asked = httpx.post(f"{url}/v1/experiments/{name}/ask").json()
    lease = {"Authorization": f"Bearer {asked['lease']['token']}"}
    reports = [
        {"sequence": number, "metrics": {"loss": loss}, "checkpoint": f"/data/{number}"}
        for number, loss in enumerate((0.3, 0.1, 0.2))
    ]
    trial = f"{url}/v1/trials/{asked['trial']}"
    httpx.post(f"{trial}/reports", json={"reports": reports}, headers=lease).raise_for_status()
    httpx.post(f"{trial}/finish", json={"outcome": "completed"}, headers=lease).raise_for_status()
    rows = [line.split() for line in run("checkpoints", asked["trial"]).out.splitlines()[1:]]
    assert [(row[0], row[2], row[4]) for row in rows] == [("3", "0.2", rows[0][4]), ("2", "0.1", "best")]
    for command in (("best", name), ("show", asked["trial"])):
        shown = " ".join(run(*command).out.split())
        assert "best step 2" in shown
        assert "/data/1 (step 2)" in shown


def test_a_checkpoint_is_shown_with_its_size_and_pinned(run: Run, project: Path, url: str) -> None:
    experiment = external(run, project)
    saved = {"checkpoint": "/data/1", "checkpoint_bytes": 1_234_567}
    trial = finish_one(url, str(experiment["name"]), {"outcome": "completed"}, **saved)
    shown = run("checkpoints", trial).out
    assert "1.23 MB" in shown
    assert "pinned" not in shown
    assert "pinned" in run("checkpoints", trial, "--pin", "1").out
    assert "pinned" not in run("checkpoints", trial, "--unpin", "1").out
    missing = run("checkpoints", trial, "--pin", "7")
    assert (missing.code, "no checkpoint at step 7" in missing.err) == (2, True)


def test_the_plan_of_retention_names_each_checkpoint_and_the_totals(run: Run, project: Path, url: str) -> None:
    name = str(external(run, project, limits={"max_trials": 3})["name"])
    assert "No checkpoints." in run("retention", name).out
    for number in range(3):
        saved = {"checkpoint": f"/data/{number}", "checkpoint_bytes": 1_000_000}
        finish_one(url, name, {"outcome": "completed"}, **saved)
    shown = run("retention", name, "--keep-best-trials", "1").out
    assert "remove 0 (0 B), keep 3 (3 MB)" in shown
    assert len(re.findall(r"\d +1 +1 MB +keep +trial \d ended less than 15 s ago", shown)) == 3
    assert run("retention", name, "--keep-best-trials", "0").code == 2


def test_the_plan_of_retention_has_all_pages(run: Run) -> None:
    one = {"trial_number": 7, "step": 3, "bytes": 5_000, "action": "remove", "why": "trial 7 is not among the best 1"}
    totals = {"remove": {"count": 2, "bytes": 10_000}, "keep": {"count": 0, "bytes": 0}}
    pages = [totals | {"items": [one], "next_cursor": cursor} for cursor in ("more", None)]
    with answering(*map(answer, pages)) as (address, requests):
        shown = run("retention", "digits", "--no-keep-last", "--url", address).out
    assert [httpx.URL(request.path).query for request in requests] == [
        b"keep_last=false",
        b"keep_last=false&cursor=more",
    ]
    assert shown.count("5 kB") == 2
    assert "remove 2 (10 kB), keep 0 (0 B)" in shown


def test_without_a_service_the_message_says_how_to_start_one(run: Run) -> None:
    ended = run("ls", "--url", f"http://me:a-password@127.0.0.1:{free_port()}")
    assert ended.code == 1
    assert "no service answers at http://127.0.0.1:" in ended.err
    assert "a-password" not in ended.err
    assert "`paceline up`" in ended.err


def test_every_command_has_help_and_there_is_a_version(run: Run) -> None:
    group: Any = typer.main.get_command(app)
    assert {"up", "submit", "show", "token"} <= group.commands.keys()
    for command in group.commands:
        ended = run(command, "--help")
        assert ended.code == 0
        assert f"paceline {command} " in ended.out
    assert run("--version").out.startswith("paceline ")


@pytest.mark.parametrize(
    ("host", "env", "otherwise"),
    [
        ("0.0.0.0", {}, "bind to 127.0.0.1; or, in a trusted network, allow callers without tokens: --insecure"),
        ("127.0.0.1", {"PACELINE_REQUIRE_TOKENS": "1"}, "Or unset PACELINE_REQUIRE_TOKENS"),
    ],
)
def test_serving_without_the_tokens_that_it_needs_is_refused_with_the_command_that_makes_one(
    tmp_path: Path, host: str, env: dict[str, str], otherwise: str
) -> None:
    process = serve(tmp_path, "--host", host, "--port", "0", **env)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    said = " ".join(said.split())
    assert f"`PACELINE_DATA_DIR={tmp_path} paceline token create NAME --role admin`" in said
    assert otherwise in said


def test_serve_names_a_port_that_is_taken(tmp_path: Path, url: str) -> None:
    port = url.rpartition(":")[2]
    process = serve(tmp_path, PACELINE_PORT=port)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"port {port} of 127.0.0.1 is already taken" in said


@pytest.mark.parametrize("port", ["-1", "70000"])
def test_serve_refuses_a_port_that_does_not_exist(tmp_path: Path, port: str) -> None:
    process = serve(tmp_path, "--port", port, COLUMNS="200")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "Invalid value for '--port'" in said


@pytest.mark.parametrize("cpus", ["-1", "0"])
def test_up_refuses_a_number_of_cpus_that_runs_nothing(run: Run, monkeypatch: pytest.MonkeyPatch, cpus: str) -> None:
    monkeypatch.setattr("service.stack.up.run", lambda options: pytest.fail(f"started with {options}"))
    ended = run("up", "--cpus", cpus)
    assert ended.code == 2
    assert "Invalid value for '--cpus'" in ended.err


def test_serve_without_its_database_fails_as_other_commands_do(tmp_path: Path) -> None:
    process = serve(tmp_path, "--port", "0", PACELINE_DATABASE_URL=f"postgresql+psycopg://me@127.0.0.1:{free_port()}/x")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "does not answer: connection failed" in said


def test_a_second_service_on_one_sqlite_database_is_refused(tmp_path: Path) -> None:
    """Another path to it makes no difference. The second would not hear of the changes of the first one."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "data")
    with serving(tmp_path / "data"):
        process = serve(link, "--port", "0")
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"another service process uses the database {tmp_path}/data/paceline.db" in said.replace("\n", "")
    with serving(link):
        pass


def test_serve_creates_its_database_and_stops_on_sigterm(tmp_path: Path) -> None:
    """And shares its files with no other user, those that an earlier version left included."""
    tmp_path.chmod(0o755)
    logs, checkpoints = tmp_path / "logs" / "t-1", tmp_path / "checkpoints"
    for directory in (logs, checkpoints):
        directory.mkdir(parents=True)
        directory.chmod(0o755)
        (directory / "rank-0.log").touch(0o644)
    (tmp_path / "outside").symlink_to("/etc/hostname")
    with serving(tmp_path) as url:
        assert httpx.get(f"{url}/v1/experiments").json()["items"] == []
        package = httpx.post(f"{url}/v1/packages?filename=train.py", content=b"x = 1\n")
        assert package.status_code == 201
        assert open_to_others(tmp_path) == {checkpoints, checkpoints / "rank-0.log"}
        assert {"paceline.db", "paceline.db-wal", "lease-key"} <= {path.name for path in tmp_path.iterdir()}
    assert Path("/etc/hostname").stat().st_mode & 0o004


def test_an_agent_refuses_a_misspelled_switch(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_TRACING", "yess")
    ended = run("agent", "--ray-address", "127.0.0.1:1")
    assert ended.code == 2
    assert "PACELINE_TRACING must be 1 or 0" in ended.err


def test_best_with_several_objectives_has_all_pages_of_the_front(run: Run) -> None:
    def trial(number: int) -> dict[str, Any]:
        return {"id": f"t-{number}", "number": number, "status": "completed", "params": {}, "values": {}}

    def page(number: int, cursor: str | None) -> Answer:
        return answer({"objectives": [], "count": 2, "items": [trial(number)], "next_cursor": cursor})

    spec = {"objectives": [{"metric": "loss", "direction": "minimize"}]}
    experiment = {"id": "x-1", "name": "mine", "status": "completed", "spec": spec, "counts": {}, "created_at": ""}
    with answering(page(0, "more"), page(1, None), answer(experiment)) as (url, requests):
        found = json.loads(run("best", "mine", "--json", "--url", url).out)
    assert ([one["number"] for one in found["items"]], found["next_cursor"]) == ([0, 1], None)
    assert requests[1].path.endswith("?cursor=more")
