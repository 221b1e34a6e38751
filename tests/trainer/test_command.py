"""Trials of kind `command` on a real Ray: any program, its metrics, its checkpoints, and its end."""

import io
import json
import shlex
import sys
import uuid
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.processes import is_alive
from tests.trainer.conftest import until
from tests.trainer.fake_service import PATIENCE_SECONDS, FakeService
from trainer.unused_folders import SCRATCH
from trainer.wire import Answer, Decision, FailureKind, Outcome, Report

pytestmark = [pytest.mark.ray, pytest.mark.slow]

LOSS = {"stdout": [r"step=(?P<step>\d+) loss=(?P<loss>\S+)"]}
STEPS = "import os, sys, time\nfor step in range(1, int(sys.argv[1]) + 1):\n    print(f'step={step} loss={1 / step}')\n"

AddCommand = Callable[..., str]


@pytest.fixture
def add_command(service: FakeService) -> AddCommand:
    """Queue a trial that runs a shell script on one worker or several; returns its id."""

    def add(script: str, *, params: dict[str, Any] | None = None, workers: int = 1, **fields: Any) -> str:
        trainer = {
            "kind": "command",
            "command": ["sh", "-c", script],
            "metrics": fields.pop("metrics", LOSS),
            "scaling": {"num_workers": workers, **fields.pop("scaling", {})},
            "secrets": fields.pop("secrets", {}),
        }
        if (files := fields.pop("package", None)) is not None:
            trainer["package"] = service.add_package(files, "steps.py")
        return service.add_trial(trainer, params, **fields)

    return add


def stop_at_second(_: str, report: Report) -> Answer:
    return Answer(decision=Decision.STOP, reason="too slow") if report.sequence == 1 else Answer()


def steps_of(service: FakeService, trial: str) -> list[Any]:
    return [report.metrics.get("step") for report in service.reports[trial]]


def zipped(folder: Path) -> bytes:
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        for path in folder.iterdir():
            archive.write(path, path.name)
    return package.getvalue()


def test_a_program_of_the_package_reports_by_its_output(service: FakeService, add_command: AddCommand) -> None:
    trial = add_command("python steps.py {params.steps}", params={"steps": 3}, package=STEPS)
    finish = service.finished(trial)
    assert finish.outcome == Outcome.COMPLETED, finish.error
    assert [report.metrics for report in service.reports[trial]] == [{"step": n, "loss": 1 / n} for n in (1, 2, 3)]
    assert "step=2 loss=0.5" in service.log(trial)


def test_its_log_warns_of_a_line_that_is_too_long_to_be_searched(service: FakeService, add_command: AddCommand) -> None:
    trial = add_command("for n in 1 2; do printf '%20000s' loss=$n; echo; done; echo step=1 loss=0.5")
    assert service.finished(trial).outcome == Outcome.COMPLETED
    assert [report.metrics for report in service.reports[trial]] == [{"step": 1, "loss": 0.5}]
    assert service.log(trial).count("with more than 8192 bytes is not searched for metrics") == 1


def test_all_ranks_run_it_and_can_meet(service: FakeService, add_command: AddCommand, record: Path) -> None:
    """As with torchrun's variables; only rank 0 reports, and the others take part."""
    program = f"""
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor(float(os.environ["RANK"]) + 1)
for step in (1, 2):
    dist.all_reduce(total)
    print(f"step={{step}} loss={{total.item()}}")
with open({str(record)!r}, "a") as file:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")
    file.write(" ".join(os.environ[name] for name in names))
    file.write("\\n")
dist.destroy_process_group()  # without it, gloo's threads abort one of fifty processes at their exit
"""
    trial = add_command(f"{shlex.quote(sys.executable)} -c {shlex.quote(program)}", workers=2)
    finish = service.finished(trial)
    assert finish.outcome == Outcome.COMPLETED, (finish.error, service.log(trial))
    assert [report.metrics["loss"] for report in service.reports[trial]] == [3.0, 6.0]
    assert sorted(record.read_text().splitlines()) == ["0 2 0 2 0", "1 2 1 2 0"]


def test_its_ranks_see_all_gpus_of_the_trial_on_their_node_as_with_torchrun(
    service: FakeService, add_command: AddCommand, record: Path
) -> None:
    """A script chooses its own by LOCAL_RANK. A trial on the same, warm workers sees them, too, and is sampled."""
    note = f'echo "$LOCAL_RANK $LOCAL_WORLD_SIZE $CUDA_VISIBLE_DEVICES" >> {record}'
    gpus = {"use_gpu": True, "resources_per_worker": {"CPU": 1, "GPU": 1}}
    for _ in range(2):
        trial = add_command(f"{note}; echo step=1 loss=1", workers=2, scaling=gpus)
        finish = service.finished(trial)
        assert finish.outcome == Outcome.COMPLETED, finish.error
    seen = [line.split() for line in record.read_text().splitlines()]
    assert sorted(line[:2] for line in seen) == [["0", "2"], ["0", "2"], ["1", "2"], ["1", "2"]]
    (visible,) = {line[2] for line in seen}
    assert len(set(visible.split(","))) == 2


def test_the_example_of_accelerates_launcher_trains_on_two_workers(service: FakeService) -> None:
    pytest.importorskip("accelerate", reason="`make test` installs the extra `frameworks`")
    example = Path(__file__).parents[2] / "examples" / "accelerate"
    trainer = yaml.safe_load((example / "experiment.yaml").read_text())["trainer"]
    package = service.add_package((example / "train.py").read_text(), "train.py")
    trial = service.add_trial(trainer | {"package": package}, {}, params={"lr": 0.1})
    finish = service.finished(trial)
    assert finish.outcome == Outcome.COMPLETED, (finish.error, service.log(trial))
    assert [report.metrics["epoch"] for report in service.reports[trial]] == [1, 2, 3, 4, 5]
    assert "processes=2" in service.log(trial)


def test_the_example_of_deepspeeds_launcher_stops_and_continues_from_its_checkpoint(service: FakeService) -> None:
    if find_spec("deepspeed") is None:  # importing it here would take seconds
        pytest.skip("`make test` installs the extra `frameworks`")
    example = Path(__file__).parents[2] / "examples" / "deepspeed"
    trainer = yaml.safe_load((example / "experiment.yaml").read_text())["trainer"]
    trainer["package"] = service.add_package(zipped(example), "package.zip")
    service.decide = stop_at_second
    first = service.add_trial(trainer, params={"lr": 0.1}, keep_checkpoints=5)
    finish = service.finished(first)
    print(service.log(first))  # noqa: T201 - pytest cuts a long message of an assertion, and not this
    assert finish.outcome == Outcome.STOPPED, finish.error
    assert "processes=2" in service.log(first)
    saved = service.reports[first][0].checkpoint
    assert saved is not None
    assert [path.name for path in Path(saved).iterdir() if path.name != "saving"] == ["epoch-0001"]

    service.decide = lambda _trial, _report: Answer()
    resumed = service.add_trial(trainer, params={"lr": 0.1}, resume={"uri": saved, "step": 1})
    finish = service.finished(resumed)
    print(service.log(resumed))  # noqa: T201
    assert finish.outcome == Outcome.COMPLETED, finish.error
    assert [report.metrics["epoch"] for report in service.reports[resumed]] == [2, 3, 4, 5]


def test_a_call_with_curl_is_answered_with_the_decision(
    service: FakeService, add_command: AddCommand, record: Path
) -> None:
    service.decide = stop_at_second
    call = (
        """curl -fsS "$PACELINE_REPORT_URL" -H "Authorization: Bearer $PACELINE_LEASE" -d '{"metrics": {"step": 1}}'"""
    )
    trial = add_command(
        f"echo $PACELINE_PARAMS > {record}; {call} >> {record}; {call} >> {record}; exit 0", params={"lr": 0.5}
    )
    assert service.finished(trial).outcome == Outcome.STOPPED
    assert record.read_text() == '{"lr": 0.5}\n{"decision": "continue"}{"decision": "stop"}'


def test_a_stop_is_a_sigterm(service: FakeService, add_command: AddCommand, record: Path) -> None:
    service.decide = stop_at_second
    loop = "n=0; while :; do n=$((n+1)); echo step=$n loss=1; sleep 0.05; done"
    trial = add_command(f"trap 'echo saved > {record}; exit 0' TERM; {loop}")
    assert service.finished(trial).outcome == Outcome.STOPPED
    assert steps_of(service, trial) == [1, 2]
    assert record.read_text() == "saved\n"


def test_a_command_that_reports_without_a_pause_can_leave(
    service: FakeService, add_command: AddCommand, record: Path
) -> None:
    """What it reports after the order to stop does not hold it up."""
    service.decide = stop_at_second
    program = f"""
import signal
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
while not ended:
    print("step=1 loss=1")
open({str(record)!r}, "w").write("left")
"""
    trial = add_command(
        f"exec {shlex.quote(sys.executable)} -c {shlex.quote(program)}", stop_grace_seconds=10 * PATIENCE_SECONDS
    )
    assert service.finished(trial).outcome == Outcome.STOPPED
    assert len(service.reports[trial]) == 2
    assert record.read_text() == "left"


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("way", ["output", "call"])
def test_a_checkpoint_directory_that_cannot_be_saved_fails_the_trial_and_hangs_no_call(
    service: FakeService, add_command: AddCommand, way: str, workers: int
) -> None:
    report = {"output": "echo step=$n loss=1", "call": CALL}[way]
    script = f"""
[ $RANK = 0 ] || exec sleep 1000
n=1; {report}; until mkdir "$PACELINE_CHECKPOINT_DIR/saved"; do :; done
ln -s loop "$PACELINE_CHECKPOINT_DIR/saved/loop"; n=2; {report}; exec sleep 1000
"""
    error = service.finished(add_command(script, workers=workers)).error
    assert error is not None
    assert error.kind == FailureKind.USER_ERROR
    assert error.message.startswith("the command's checkpoint directory cannot be saved: [Errno 40] ")
    assert "/saved/loop" in error.message


def test_the_checkpoint_directory_is_saved_with_each_report_and_restored(
    service: FakeService, add_command: AddCommand, tmp_path: Path
) -> None:
    save = 'echo $n > "$PACELINE_CHECKPOINT_DIR/state"; echo step=$n loss=1'
    begin = 'n=$(cat "$PACELINE_CHECKPOINT_DIR/state" 2>/dev/null || echo 0)'
    wait = f"until [ $(ls {tmp_path} | wc -l) -ge $n ]; do sleep 0.02; done"  # as a program that trains meanwhile
    note = f'echo "$PACELINE_CHECKPOINT_DIR" > {tmp_path}/.directory'
    script = f"{note}; {begin}; while [ $n -lt 3 ]; do n=$((n+1)); {save}; {wait}; done"
    trial = add_command(script, keep_checkpoints=3)
    for count in (1, 2, 3):
        until(lambda: len(service.reports[trial]) >= count, f"report {count}")  # noqa: B023 - called here
        (tmp_path / str(count)).touch()
    assert service.finished(trial).outcome == Outcome.COMPLETED
    saved = [report.checkpoint for report in service.reports[trial] if report.checkpoint]
    assert [Path(uri, "state").read_text() for uri in saved] == ["1\n", "2\n", "3\n"]
    scratch = Path((tmp_path / ".directory").read_text()).parent
    assert scratch.name.startswith(SCRATCH), "which another attempt removes if this one is killed"
    assert not scratch.exists()

    resumed = add_command(script, resume={"uri": saved[1], "step": 2})
    assert service.finished(resumed).outcome == Outcome.COMPLETED
    assert steps_of(service, resumed) == [3]


CALL = (
    """curl -fsS "$PACELINE_REPORT_URL" -H "Authorization: Bearer $PACELINE_LEASE" -d '{"metrics": {"step": '$n'}}'"""
)


def test_all_ranks_save_and_resume_their_own_files(
    service: FakeService, add_command: AddCommand, tmp_path: Path
) -> None:
    """They wait for each other before a report and after it. In a resume, each directory begins with all files."""
    script = f"""
meet() {{ touch {tmp_path}/$n.$1.$RANK; until [ -e {tmp_path}/$n.$1.$((1-RANK)) ]; do sleep 0.01; done; }}
for n in {{params.steps}}; do
    echo $n > "$PACELINE_CHECKPOINT_DIR/new"
    mv "$PACELINE_CHECKPOINT_DIR/new" "$PACELINE_CHECKPOINT_DIR/state-$RANK"
    meet saved; [ $RANK = 1 ] || {CALL} || exit 1; meet reported
done
"""
    saved: list[str] = []
    for attempt in range(3):
        resume = {"resume": {"uri": saved[-1], "step": 2 * attempt}} if saved else {}
        params = {"steps": f"{2 * attempt + 1} {2 * attempt + 2}"}
        trial = add_command(script, params=params, workers=2, keep_checkpoints=3, **resume)
        finish = service.finished(trial)
        assert finish.outcome == Outcome.COMPLETED, (finish.error, service.log(trial))
        saved += [report.checkpoint for report in service.reports[trial] if report.checkpoint]
    found = [{path.name: path.read_text() for path in Path(uri).iterdir()} for uri in saved]
    assert found == [{f"state-{rank}": f"{step}\n" for rank in (0, 1)} for step in range(1, 7)]


SAVING = """
n=$(cat "$PACELINE_CHECKPOINT_DIR/state" 2>/dev/null || echo 0)
while [ $n -lt {steps} ]; do
    n=$((n+1))
    echo $n > "$PACELINE_CHECKPOINT_DIR/new"
    mv "$PACELINE_CHECKPOINT_DIR/new" "$PACELINE_CHECKPOINT_DIR/state"
    {report}
done
"""


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("report", "metrics"),
    [("echo step=$n loss=1", LOSS), ("""echo '{"step": '$n'}' >> metrics.jsonl""", {"file": "metrics.jsonl"})],
    ids=["output", "file"],
)
def test_a_checkpoint_has_the_state_of_its_step_though_the_command_runs_ahead(
    service: FakeService, add_command: AddCommand, report: str, metrics: dict[str, Any], workers: int
) -> None:
    """Its steps take longer than a tick of the clock, and a report takes longer than a step. Only rank 0 saves."""
    script = "[ $RANK = 0 ] || exit 0\n" + SAVING.format(steps=100, report=f"{report}; sleep 0.02")
    trial = add_command(script, keep_checkpoints=100, metrics=metrics, workers=workers)
    finish = service.finished(trial)
    assert finish.outcome == Outcome.COMPLETED, finish.error
    reports = service.reports[trial]
    assert [one.metrics["step"] for one in reports] == list(range(1, 101))
    saved = {one.metrics["step"]: Path(one.checkpoint, "state").read_text() for one in reports if one.checkpoint}
    assert saved.items() == {step: f"{step}\n" for step in saved}.items()
    assert 100 in saved, "nothing is newer than its last line"


def test_a_trial_that_stops_has_the_state_of_the_step_at_which_it_stops(
    service: FakeService, add_command: AddCommand, record: Path
) -> None:
    """Its command has trained on meanwhile: it continues with the very next step."""

    def stop_late(trial: str, report: Report) -> Answer:
        until(lambda: len(record.read_text().splitlines()) > 5, "the command runs ahead")
        return stop_at_second(trial, report)

    service.decide = stop_late
    script = SAVING.format(steps=100, report=f"echo step=$n loss=1; echo $n >> {record}; sleep 0.2")
    trial = add_command(script, keep_checkpoints=100)
    assert service.finished(trial).outcome == Outcome.STOPPED
    last = service.reports[trial][-1]
    assert last.metrics["step"] == 2
    assert last.checkpoint
    assert Path(last.checkpoint, "state").read_text() == "2\n"


@pytest.mark.parametrize(
    ("script", "workers", "says"),
    [
        ("echo step=1 loss=1; exit 3", 1, "the command ended with exit code 3: sh -c echo step=1"),
        ("kill -SEGV $$", 1, "the command ended with SIGSEGV"),
        ("[ $RANK = 0 ] && sleep 1000; exit 4", 2, "exit code 4"),
    ],
)
def test_its_exit_code_is_the_users_error(
    service: FakeService, add_command: AddCommand, script: str, workers: int, says: str
) -> None:
    error = service.finished(add_command(script, workers=workers)).error
    assert error is not None
    assert error.kind == FailureKind.USER_ERROR
    assert says in error.message


def test_its_failure_shows_the_last_lines_of_its_standard_error_without_secrets(
    service: FakeService, add_command: AddCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = f"s3cr3t/{uuid.uuid4().hex}"
    monkeypatch.setenv("AGENT_KEY", value)
    script = 'echo step=1 loss=1; for n in $(seq 30); do echo "line $n" >&2; done; echo "no entry for $KEY" >&2; exit 3'
    trial = add_command(script, secrets={"KEY": {"from_agent_env": "AGENT_KEY"}})
    error = service.finished(trial).error
    assert error is not None
    assert error.message.startswith("the command ended with exit code 3: sh -c")
    lines = [*(f"line {n}" for n in range(12, 31)), "no entry for ***"]
    assert (error.traceback or "").splitlines() == [*lines, "", error.message]
    assert service.log(trial).count("no entry for ***\n") == 1, "not once more with the failure"
    assert value not in str([service.reports, service.logs, service.finishes])


def test_its_exit_code_comes_before_a_metrics_file_that_cannot_be_read(
    service: FakeService, add_command: AddCommand
) -> None:
    script = "mkdir metrics.jsonl; echo no such column >&2; exit "
    trials = [add_command(f"{script}{code}", metrics={"file": "metrics.jsonl"}) for code in (3, 0)]
    failed, read = (service.finished(trial).error for trial in trials)
    assert failed is not None
    assert failed.kind == FailureKind.USER_ERROR
    assert failed.message.startswith("the command ended with exit code 3: sh -c mkdir metrics.jsonl")
    assert (failed.traceback or "").startswith("no such column\n")
    assert "the command's metrics file cannot be read: [Errno 21] " in service.log(trials[0])
    assert read is not None
    assert read.message.startswith("the command's metrics file cannot be read: [Errno 21] ")


def test_its_failure_shows_its_output_where_it_has_no_standard_error(
    service: FakeService, add_command: AddCommand
) -> None:
    """Each rank has its own, also where the output has no metrics and so is not captured."""
    trial = add_command('echo "rank $RANK: no such file"; exit 1', workers=2, metrics={"file": "metrics.jsonl"})
    error = service.finished(trial).error
    assert error is not None
    assert (error.traceback or "").splitlines()[0] in {"rank 0: no such file", "rank 1: no such file"}
    assert all(one.traceback.startswith(f"rank {one.rank}: no such file") for one in error.ranks)


def test_a_program_that_does_not_exist_cannot_start(service: FakeService) -> None:
    error = service.finished(service.add_trial({"kind": "command", "command": ["trian"]})).error
    assert error is not None
    assert error.kind == FailureKind.CANNOT_START
    assert "'trian' is neither on the PATH of this node nor a file of the package" in error.message


def test_a_kill_ends_the_program_and_its_children(service: FakeService, add_command: AddCommand, record: Path) -> None:
    script = f"setsid sleep 1000 & echo $! > {record}; echo step=1 loss=1; wait"
    trial = add_command(script, stop_grace_seconds=10 * PATIENCE_SECONDS)
    service.wait_for(lambda: service.reports[trial])
    sleeper = psutil.Process(int(record.read_text()))
    service.order(trial, Decision.KILL)
    assert service.finished(trial).outcome == Outcome.STOPPED
    until(lambda: not is_alive(sleeper), "its child is gone")


def test_lines_of_a_file_are_reports(service: FakeService, add_command: AddCommand) -> None:
    lines = "\n".join(json.dumps({"step": step, "loss": 0.5}) for step in (1, 2))
    trial = add_command(f"printf '%s\\n' '{lines}' > metrics.jsonl", metrics={"file": "metrics.jsonl"})
    assert service.finished(trial).outcome == Outcome.COMPLETED
    assert steps_of(service, trial) == [1, 2]
