"""A program in place of Ray's `setup_worker.py`, which runs before each worker process that has a runtime environment.

Ray's imports all of Ray to set some variables and run a command: 0.3 s of CPU time before each worker process. This one
does the same with the standard library, and leaves what it does not know to Ray's. This file must keep its
name, by which the raylet recognizes the program.
"""

import argparse
import importlib.util
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any, NoReturn

KNOWN = {"env_vars", "py_executable"}
"""What a context may set; its other fields are for conda, containers, pip, uv and Java."""


def main(arguments: list[str]) -> NoReturn:
    """`arguments` are the ones of Ray's program: its own two options, and the worker's file and options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--serialized-runtime-env-context", dest="context", default="{}")
    parser.add_argument("--language")
    options, worker = parser.parse_known_args(arguments)
    context: dict[str, Any] = {name: value for name, value in json.loads(options.context).items() if value}
    variables: dict[str, str] = context.get("env_vars", {})
    has_references = any("$" in value for value in variables.values())  # to other variables
    if sys.platform != "linux" or options.language != "PYTHON" or context.keys() - KNOWN or has_references:
        os.execv(sys.executable, [sys.executable, rays_program(), *arguments])  # noqa: S606
    # As in Ray's, `py_executable` is part of a command of the shell.
    command = ["exec", context.get("py_executable", sys.executable), *map(shlex.quote, worker)]
    if "PATH" in variables and not has_shell(variables["PATH"]):  # Ray's program fails without a reason
        command = [f"PATH={shlex.quote(variables.pop('PATH'))}", *command]
    os.environ |= variables
    os.execvp("bash", ["bash", "-c", " ".join(command)])  # noqa: S606, S607


def has_shell(path: str) -> bool:
    """Whether the shell is found with this PATH."""
    return any(os.access(Path(folder, "bash"), os.X_OK) for folder in os.get_exec_path({"PATH": path}))


def rays_program() -> str:
    """Found without an import of Ray."""
    ray = importlib.util.find_spec("ray")
    if ray is None or ray.origin is None:
        raise ModuleNotFoundError("Ray is not installed where its node runs")
    return str(Path(ray.origin).with_name("_private") / "workers" / "setup_worker.py")


if __name__ == "__main__":
    main(sys.argv[1:])
