"""The program that starts worker processes does what Ray's does, or leaves it to Ray's."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.ray_train.processes import setup_worker

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing Ray takes a second

WORKER = ["/ray/default_worker.py", "--session-name=it's one", "--webui=", "--startup-token=3", "--language-of=me"]
TEXTS = st.text(st.characters(exclude_characters="\0", codec="utf-8"))
NAMES = st.from_regex("[A-Z_]{1,8}", fullmatch=True)
UNUSED: dict[str, Any] = {"command_prefix": [], "java_jars": [], "override_worker_entrypoint": None}
CONTEXTS = st.fixed_dictionaries(
    {name: st.just(value) for name, value in UNUSED.items()},
    optional={
        "env_vars": st.dictionaries(NAMES, TEXTS.filter(lambda text: "$" not in text)),
        "py_executable": st.one_of(st.none(), TEXTS),
    },
)


class _ReplacedBy(BaseException):
    """The program and arguments that a process would become, and its environment."""

    def __init__(self, program: str, arguments: list[str]) -> None:
        self.outcome = program, arguments, dict(os.environ)


def _exec(program: str, args: list[str]) -> None:
    raise _ReplacedBy(program, args)


def outcome(patch: pytest.MonkeyPatch, arguments: list[str]) -> tuple[str, list[str], Mapping[str, str]]:
    patch.setattr(os, "execvp", _exec)
    patch.setattr(os, "execv", _exec)
    patch.setattr(os, "environ", os.environ.copy())
    with pytest.raises(_ReplacedBy) as replaced:
        setup_worker.main(arguments)
    return replaced.value.outcome


def outcome_of_rays(patch: pytest.MonkeyPatch, context: str) -> tuple[str, list[str], Mapping[str, str]]:
    from ray._private.runtime_env.context import RuntimeEnvContext  # noqa: PLC0415 - heavy
    from ray.core.generated.common_pb2 import Language  # noqa: PLC0415

    patch.setattr(os, "execvp", _exec)
    patch.setattr(os, "environ", os.environ.copy())
    with pytest.raises(_ReplacedBy) as replaced:
        RuntimeEnvContext.deserialize(context).exec_worker(list(WORKER), Language.Value("PYTHON"))
    return replaced.value.outcome


def options(context: Mapping[str, Any], language: str = "PYTHON") -> list[str]:
    return [f"--language={language}", f"--serialized-runtime-env-context={json.dumps(context)}"]


@given(CONTEXTS)
def test_the_command_and_the_environment_are_those_of_rays_program(context: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        expected = outcome_of_rays(patch, json.dumps(context))
    with pytest.MonkeyPatch.context() as patch:
        assert outcome(patch, [*WORKER, *options(context)]) == expected


@pytest.mark.parametrize(
    ("context", "language"),
    [
        ({"command_prefix": ["conda activate it &&"]}, "PYTHON"),
        ({"override_worker_entrypoint": "/in/the/container.py"}, "PYTHON"),
        ({"java_jars": ["a.jar"]}, "PYTHON"),
        ({"env_vars": {"PATH": "/mine:${PATH}"}}, "PYTHON"),
        ({"a_field_of_a_later_ray": 1}, "PYTHON"),
        ({}, "JAVA"),
    ],
)
def test_what_it_does_not_know_is_left_to_rays_program(
    context: dict[str, Any], language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*WORKER, *options(context, language)]
    program, (interpreter, script, *passed), _ = outcome(monkeypatch, arguments)
    assert (program, interpreter, passed) == (sys.executable, sys.executable, arguments)
    assert "RuntimeEnvContext" in Path(script).read_text()


def test_a_worker_starts_with_a_path_that_has_no_programs(tmp_path: Path) -> None:
    """The command for the Python of the node uses some, as this one."""
    worker, python, path = tmp_path / "worker.py", tmp_path / "python", f"{tmp_path}/it's nowhere"
    worker.write_text("import os; print(os.environ['PATH'])")
    python.write_text(sys.executable)
    context = {"env_vars": {"PATH": path}, "py_executable": f'"$(cat {python})" -IS'}
    program = [sys.executable, setup_worker.__file__, str(worker), *options(context)]
    started = subprocess.run(program, check=True, capture_output=True, text=True)
    assert started.stdout.strip() == path


@pytest.mark.usefixtures("ray_address")
def test_the_raylet_runs_it() -> None:
    raylets = [process for process in psutil.Process().children(recursive=True) if process.name() == "raylet"]
    assert [setup_worker.__file__ in " ".join(raylet.cmdline()) for raylet in raylets] == [True]
