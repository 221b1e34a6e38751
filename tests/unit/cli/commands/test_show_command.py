"""`paceline show`: of an experiment that failed, and of a trial."""

import io
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from service.cli.terminal.console import SafeConsole
from service.cli.terminal.curves import Curve, Curves
from service.cli.terminal.live_table import live_table
from service.cli.terminal.progress import TrialProgress
from service.cli.terminal.progress_view import status_line
from service.cli.terminal.trial_facts import SOURCES
from tests.unit.cli.conftest import Run, external, finish_one, service_in_a_thread, submitted

pytestmark = pytest.mark.slow

TRACEBACK = "Traceback (most recent call last):\n  ...\nValueError: no [luck]"


def test_a_trial_is_shown_with_its_attempts_and_their_errors(run: Run, project: Path, url: str) -> None:
    name = str(external(run, project, failures={"max_retries": 1, "max_failed_trials": 0})["name"])
    error = {"kind": "user_error", "message": "ValueError: no [luck]", "traceback": TRACEBACK}
    for _ in range(2):
        trial = finish_one(url, name, {"outcome": "failed", "error": error}, checkpoint="/data/1")
    found = httpx.get(f"{url}/v1/trials/{trial}").json()
    assert json.loads(run("show", trial, "--json").out) == found
    shown = run("show", trial).out
    assert f"0 ({trial}) of {found['experiment_id']}" in shown
    assert f"parameters  lr={found['params']['lr']}\n" in shown
    assert f"source      {SOURCES[found['source']]}\n" in shown
    assert "checkpoint  /data/1 (step 2)\n" in shown
    for line in ("failed: user_error\n", "step        2\n", "loss        0.5\n", "/data/1 (step 1)\n", TRACEBACK):
        assert line in shown
    assert shown.count("attempt ") == 2


def numbers(shown: str) -> list[int]:
    return [int(found) for found in re.findall(r"^(\d+) +t-", shown, re.MULTILINE)]


def test_of_many_trials_the_newest_are_shown_and_others_on_demand(
    run: Run, project: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"max_trials": 9}
    name = str(external(run, project, limits=limits, enqueue=[{"lr": lr} for lr in (0.1, 0.2, 0.3, 0.4)])["name"])
    for loss, outcome in ((0.3, "completed"), (0.1, "completed"), (0.2, "stopped")):
        finish_one(url, name, {"outcome": outcome}, metrics={"loss": loss})
    monkeypatch.setattr("service.cli.commands.experiments.SHOWN_TRIALS", 2)
    shown = run("show", name).out
    assert numbers(shown) == [2, 3]
    assert "2 earlier trials not shown. All of them: --all; the best ones: --top 20" in shown
    assert numbers(run("show", name, "--all").out) == [0, 1, 2, 3]
    assert numbers(run("show", name, "--top", "3").out) == [1, 2, 0]
    assert numbers(run("show", name, "--status", "completed").out) == [0, 1]
    assert [one["number"] for one in json.loads(run("show", name, "--json").out)["trials"]] == [0, 1, 2, 3]
    assert [one["number"] for one in json.loads(run("show", name, "--top", "1", "--json").out)["trials"]] == [1]
    refused = run("show", name, "--status", "done")
    assert (refused.code, "status: should be" in refused.err) == (2, True)
    assert "the target is a trial" in run("show", f"{name}#1", "--top", "1").err


def test_an_attempt_whose_function_was_not_called_yet_is_starting(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "train.py").write_text("def train_fn(config): ...\n")
    room = {"free": {"CPU": 4}, "total": {"CPU": 4}}
    with service_in_a_thread(project / "data") as url:  # its agent would take the trials of other tests
        monkeypatch.setenv("PACELINE_URL", url)
        submitted(run, project)
        claim = httpx.post(f"{url}/v1/agents/here/claim", json={"request_id": "1", "nodes": [room]}).json()
        shown = run("show", claim["trial"]).out
        assert "attempt 1  starting for " in shown
        assert " s, on agent here: its workers have not called the training function yet" in shown
        lease = {"Authorization": f"Bearer {claim['lease']['token']}"}
        beat: dict[str, dict[str, float]] = {"phases": {}}  # what a slot tells while Ray installs a runtime environment
        httpx.post(f"{url}/v1/trials/{claim['trial']}/heartbeat", json=beat, headers=lease).raise_for_status()
        assert "attempt 1  starting for " in run("show", claim["trial"]).out
        begun = {"running_seconds": 1.0, "phases": {"data": 0.5}}
        httpx.post(f"{url}/v1/trials/{claim['trial']}/heartbeat", json=begun, headers=lease).raise_for_status()
        shown = run("show", claim["trial"]).out
        assert "attempt 1  running for " in shown
        assert " s, no report yet, on agent here\n" in shown


def test_an_experiment_that_is_ending_says_how_many_trials_still_run(run: Run, project: Path, url: str) -> None:
    name = str(external(run, project)["name"])
    httpx.post(f"{url}/v1/experiments/{name}/ask").raise_for_status()
    httpx.post(f"{url}/v1/experiments/{name}/stop").raise_for_status()
    assert "ending: 1 trial still runs (user: a user stopped it)\n" in run("show", name).out


def test_an_experiment_whose_reports_lack_the_objective_says_so(run: Run, project: Path, url: str) -> None:
    name = str(external(run, project)["name"])
    asked = httpx.post(f"{url}/v1/experiments/{name}/ask").json()
    report = {"reports": [{"sequence": 0, "metrics": {"val_loss": 0.5}}]}
    lease = {"Authorization": f"Bearer {asked['lease']['token']}"}
    httpx.post(f"{url}/v1/trials/{asked['trial']}/reports", json=report, headers=lease).raise_for_status()
    missing = "no report so far has a number for loss; the newest report of trial 0 has val_loss"
    assert missing in run("show", name).out
    assert missing in status_line(httpx.get(f"{url}/v1/experiments/{name}").json(), TrialProgress("loss"))


def test_an_experiment_is_shown_with_why_it_and_its_trials_failed(run: Run, project: Path, url: str) -> None:
    name = str(external(run, project, failures={"max_retries": 0, "max_failed_trials": 0})["name"])
    error = {"kind": "diverged", "message": "the loss is NaN", "traceback": TRACEBACK}
    finish_one(url, name, {"outcome": "failed", "error": error})
    shown = run("show", name).out
    assert "failed: diverged  " in shown
    assert f"traceback       {TRACEBACK}\n" in shown


def test_names_and_messages_cannot_control_the_terminal(run: Run, project: Path, url: str) -> None:
    hostile = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e"
    changes = {"space": {f"x{hostile}": {"type": "float", "low": 0, "high": 1}}, "tags": {hostile: hostile}}
    name = str(external(run, project, **changes, failures={"max_retries": 0, "max_failed_trials": 0})["name"])
    error = {"kind": "user_error", "message": f"boom {hostile}", "traceback": f"tb {hostile}"}
    trial = finish_one(url, name, {"outcome": "failed", "error": error})
    for command in (("show", name), ("show", trial), ("watch", name), ("show", hostile)):
        ended = run(*command)
        printed = ended.out + ended.err
        assert not set(printed) & {"\x1b", "\x07", "\x9b", "\u202e"}, command
        assert r"\x1b[2J\x9b31m\u202e" in printed, command


def test_what_a_live_view_shows_of_control_characters_is_not_cut() -> None:
    file = io.StringIO()
    console = SafeConsole(file=file, width=100)
    table = Table("name")
    table.add_row("a\u202eb")
    console.print(table)
    curves = Curves("loss")
    curves.by_trial["t"] = Curve(0, params={"a\u202eb": 1}, status="running", points={1: 0.5})
    console.print(live_table(curves, metric="c\u202ed", maximize=True, rows=1, now=datetime.now(UTC)))
    for text in (r"│ a\u202eb │", r"a\u202eb=1", r"c\u202ed"):
        assert text in file.getvalue()


def test_a_live_view_shows_control_characters_and_moves_the_cursor_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    file = io.StringIO()
    with Live(Text("x\x1b[2J"), console=SafeConsole(file=file, force_terminal=True, width=80)) as view:
        view.update(Table.grid(), refresh=True)
        view.update(Panel("y\x9b2J"), refresh=True)
    assert r"x\x1b[2J" in file.getvalue()
    assert r"y\x9b2J" in file.getvalue()
    assert "\x1b[2J" not in file.getvalue()
    assert "\x1b[?25l" in file.getvalue()
