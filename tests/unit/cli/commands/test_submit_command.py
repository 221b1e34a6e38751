"""`paceline submit`: the code that is sent, and what is printed beside the answer."""

import io
import json
import os
import tempfile
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from service.cli.client.client import Client
from tests.unit.cli.canned_service import answering, problem
from tests.unit.cli.conftest import SPEC, Run, submitted

pytestmark = pytest.mark.slow

MEGABYTE = 1_000_000


def test_an_experiment_is_submitted_with_the_code_beside_it(run: Run, project: Path, url: str) -> None:
    experiment = submitted(run, project)
    trainer = experiment["spec"]["trainer"]  # type: ignore[index]
    package = httpx.get(f"{url}/v1/packages/{trainer['package']}")
    assert package.headers["content-disposition"].endswith('package.zip"')


def files_sent(url: str, experiment: dict[str, Any]) -> list[str]:
    package = httpx.get(f"{url}/v1/packages/{experiment['spec']['trainer']['package']}")
    with zipfile.ZipFile(io.BytesIO(package.content)) as archive:
        return archive.namelist()


@pytest.mark.parametrize("file", ["lease-key", "paceline.db"])
def test_a_data_directory_of_the_service_is_not_sent(run: Run, project: Path, url: str, file: str) -> None:
    (project / "run1" / "logs").mkdir(parents=True)
    for path in (file, "up.log", "logs/agent.log"):
        (project / "run1" / path).write_text("secret")
    assert files_sent(url, submitted(run, project)) == ["experiment.yaml", "train.py"]
    refused = run("submit", str(project / "experiment.yaml"), "--code", str(project / "run1"))
    assert (refused.code, f"{project / 'run1'} is a data directory of the service" in refused.err) == (2, True)


def test_what_an_experiment_waits_for_is_printed_at_its_submission(run: Run, project: Path) -> None:
    ended = run("submit", str(project / "experiment.yaml"))
    assert " is running: up to 2 trials, 1 at a time. To follow it: paceline watch mine" in ended.out
    assert ended.out.splitlines()[1].startswith("waiting for an agent: none is connected")


@pytest.mark.parametrize("changes", [(), ("--set", "limits.max_trials=3")])
def test_a_spec_can_come_from_a_pipe(run: Run, changes: tuple[str, ...]) -> None:
    spec = {**SPEC, "name": f"piped-{time.monotonic_ns()}", "trainer": {"kind": "external"}}
    reading, writing = os.pipe()
    os.write(writing, yaml.safe_dump(spec).encode())
    os.close(writing)
    ended = run("submit", f"/dev/fd/{reading}", *changes, "--json")
    os.close(reading)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["name"] == spec["name"]


def test_one_file_can_be_sent_and_another_name_given(run: Run, project: Path, url: str) -> None:
    name = f"other-{time.monotonic_ns()}"
    experiment = submitted(run, project, "--code", str(project / "train.py"), "--name", name)
    assert experiment["name"] == name
    package = httpx.get(f"{url}/v1/packages/{experiment['spec']['trainer']['package']}")  # type: ignore[index]
    assert package.content == (project / "train.py").read_bytes()


def test_fields_of_the_spec_are_replaced_for_one_submission(run: Run, project: Path) -> None:
    settings = ("--set", "limits.max_trials=1", "--set", 'tags={"of": "a try"}', "--set", "limits.parallelism=null")
    spec: Any = submitted(run, project, *settings)["spec"]
    assert (spec["limits"]["max_trials"], spec["tags"], spec["limits"]["parallelism"]) == (1, {"of": "a try"}, 1)
    refused = run("submit", str(project / "experiment.yaml"), "--set", "limits.max_trials=0")
    assert (refused.code, "limits.max_trials" in refused.err) == (2, True)
    refused = run("submit", str(project / "experiment.yaml"), "--set", "limits.max_trials")
    assert "--set must be FIELD=VALUE" in refused.err


def test_the_code_is_that_of_the_replaced_fields(run: Run, project: Path, url: str) -> None:
    spec = {**SPEC, "name": f"replaced-{time.monotonic_ns()}", "trainer": {"entrypoint": "missing:train_fn"}}
    (project / "experiment.yaml").write_text(yaml.safe_dump(spec))
    experiment = submitted(run, project, "--set", "trainer.entrypoint=train:train_fn")
    assert "train.py" in files_sent(url, experiment)


def test_the_same_file_can_be_submitted_again_under_the_next_free_name(run: Run, project: Path) -> None:
    name = f"again-{time.monotonic_ns()}"
    names = [submitted(run, project, "--name", name, "--unique")["name"] for _ in range(3)]
    assert names == [name, f"{name}-2", f"{name}-3"]


def test_a_name_that_is_taken_meanwhile_is_chosen_again(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another submission takes the free name between the listing and the call."""
    name, submit = f"raced-{time.monotonic_ns()}", Client.submit
    sent: list[Any] = []

    def raced(client: Client, spec: bytes, code: Any) -> Any:
        if not sent:
            sent.append(submit(client, spec, None))
        return submit(client, spec, code)

    monkeypatch.setattr(Client, "submit", raced)
    assert submitted(run, project, "--name", name, "--unique")["name"] == f"{name}-2"


def test_warnings_are_printed_beside_the_answer(run: Run, project: Path) -> None:
    spec = SPEC | {
        "name": f"warned-{time.monotonic_ns()}",
        "search": {"sampler": "nsga2"},
        "early_stopping": {"rule": "asha"},
    }
    (project / "experiment.yaml").write_text(yaml.safe_dump(spec))
    ended = run("submit", str(project / "experiment.yaml"), "--json")
    assert ended.code == 0
    assert ended.err.startswith("warning: search.sampler: nsga2 learns from completed trials only")
    [warning] = json.loads(ended.out)["warnings"]
    shown = run("show", spec["name"])
    assert warning["message"] in shown.out
    assert warning["message"] in run("preview", str(project / "experiment.yaml")).out


def test_folders_that_are_links_are_named_with_the_answer(
    run: Run, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (project / "data").symlink_to(tmp_path_factory.mktemp("data"))
    ended = run("submit", str(project / "experiment.yaml"))
    assert ended.err == "warning: code: data is a link to a folder and was not sent\n"
    refused = run("submit", str(project / "experiment.yaml"))
    assert "hint: data is a link to a folder and was not sent" in refused.err


def test_links_to_files_outside_of_the_folder_are_named_with_their_targets(
    run: Run, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared = tmp_path_factory.mktemp("shared") / "losses.py"
    shared.write_text("# losses")
    (project / "losses.py").symlink_to(shared)
    (project / "again.py").symlink_to("train.py")
    ended = run("submit", str(project / "experiment.yaml"))
    assert ended.err == f"warning: code: losses.py is a link to {shared}, whose content was sent\n"


def test_links_to_files_that_are_left_out_are_named_with_their_targets(run: Run, project: Path) -> None:
    (project / "run1").mkdir()
    for path in ("run1/lease-key", ".env"):
        (project / path).write_text("secret")
    (project / "env.txt").symlink_to(".env")
    (project / "key.txt").symlink_to("run1/lease-key")
    (project / "key-too.txt").symlink_to("key.txt")
    (project / "again.py").symlink_to("train.py")
    ended = run("submit", str(project / "experiment.yaml"))
    targets = {"env.txt": ".env", "key-too.txt": "run1/lease-key", "key.txt": "run1/lease-key"}
    assert ended.err.splitlines() == [
        f"warning: code: {link} is a link to {project / target}, whose content was sent"
        for link, target in targets.items()
    ]


@pytest.mark.parametrize("file", ["lease-key", "pyvenv.cfg"])
def test_a_link_to_a_folder_that_is_never_sent_is_named(
    run: Run, project: Path, tmp_path_factory: pytest.TempPathFactory, file: str
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / file).touch()
    (project / "run1").symlink_to(elsewhere)
    ended = run("submit", str(project / "experiment.yaml"))
    assert ended.err == "warning: code: run1 is a link to a folder and was not sent\n"


@pytest.mark.parametrize("arguments", [[], ["--code", "data.bin"]])
def test_code_is_not_read_into_memory_as_a_whole(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(project)
    (project / "data.bin").write_bytes(os.urandom(MEGABYTE) * 20)
    with answering(problem(413, detail="too large")) as (address, requests):
        tracemalloc.start()
        try:
            ended = run("submit", "experiment.yaml", "--url", address, *arguments)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert "error: too large" in ended.err
    assert requests[0].length > 20 * MEGABYTE
    assert peak < 10 * MEGABYTE


def test_a_temporary_directory_without_room_is_named(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: io.FileIO("/dev/full", "r+"))
    monkeypatch.setattr(tempfile, "tempdir", "/small")
    ended = run("submit", str(project / "experiment.yaml"))
    assert ended.err == "error: /small has no room for the packed code; free some, or set TMPDIR\n"
    assert ended.code == 2


@pytest.mark.parametrize(
    ("trainer", "says"),
    [
        (
            {"kind": "torch", "entrypoint": "missing:train_fn"},
            "no code is sent: {folder} has no module 'missing'; it must be importable on the cluster",
        ),
        (
            {"kind": "command", "command": ["python", "missing.py", "{params.lr}"]},
            "no code is sent: {folder} has no 'missing.py'; it must be on the cluster",
        ),
        ({"kind": "command", "command": ["installed", "{params.lr}"]}, None),
        ({"kind": "external"}, None),
    ],
)
def test_a_warning_says_why_no_code_is_sent(run: Run, project: Path, trainer: dict[str, Any], says: str | None) -> None:
    spec = SPEC | {"name": f"no-code-{time.monotonic_ns()}", "trainer": trainer}
    (project / "experiment.yaml").write_text(yaml.safe_dump(spec))
    ended = run("submit", str(project / "experiment.yaml"))
    assert ended.code == 0
    assert ended.err == (f"warning: code: {says.format(folder=project)}\n" if says else "")


def test_each_mistake_in_a_spec_has_its_own_line_with_its_path(run: Run, project: Path) -> None:
    spec = SPEC | {"space": {"lr": {"type": "float", "low": 0, "high": 1, "log": True}}, "speling": 1}
    (project / "experiment.yaml").write_text(yaml.safe_dump(spec))
    ended = run("submit", str(project / "experiment.yaml"))
    assert ended.code == 2
    lines = ended.err.splitlines()
    assert len(lines) == 2
    assert any(line.startswith("error: space.lr.low: ") for line in lines)
    assert any(line.startswith("error: speling: ") for line in lines)


def test_the_service_explains_a_file_that_is_not_yaml(run: Run, project: Path) -> None:
    (project / "experiment.yaml").write_text("name: [unclosed")
    ended = run("submit", str(project / "experiment.yaml"))
    assert ended.code == 2
    assert "line" in ended.err


def test_a_missing_spec_file_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    assert run("submit", str(tmp_path / "absent.yaml")).code == 2
