"""The runtime environments of slots and of their workers, whose processes the fork server of their node starts."""

import base64
import inspect
import math
import sys
import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from trainer.ray_train.processes import fork_server
from trainer.ray_train.processes.fork_server import THREADS  # by name: `worker_runtime_env` travels by value
from trainer.resources import bundles_of

NODES_PYTHON = (
    r'"$(sed -zn "s/^--python_worker_command=\([^ ]*\) .*/\1/p" /proc/$RAY_RAYLET_PID/cmdline 2>/dev/null'
    r' | tr -d "\0" | grep . || command -v python3)"'
)
"""Bash for the Python of the node, which Ray no longer says where it has been told to use another command."""


def forked_runtime_env(modules: Sequence[str] = ()) -> dict[str, Any]:
    """The runtime environment of actors whose processes are forked. The actors that they start inherit it.

    The processes have imported `modules` as well, as far as those are installed on the node. The program travels in
    the command, because nothing of ours is installed on the nodes.
    """
    if sys.platform != "linux":
        return {}
    program = inspect.getsource(fork_server) + f"main(bootstrap, {tuple(modules)!r})\n"
    content = base64.b64encode(zlib.compress(program.encode(), 9)).decode()
    # `bootstrap` is found again in the interpreter's own arguments.
    bootstrap = (
        "import base64,sys,zlib;bootstrap=sys.orig_argv[sys.orig_argv.index('-c')+1];"
        f"exec(zlib.decompress(base64.b64decode('{content}')))"
    )
    return {"py_executable": f'{NODES_PYTHON} -IS -c "{bootstrap}"'}


def worker_runtime_env(
    env: Mapping[str, str], scaling: Mapping[str, Any], asked_for: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """The runtime environment of training workers, beyond what they inherit; `asked_for` is the user's.

    It is empty where possible, because Ray's idle worker processes serve only actors of the same environment.
    """
    threads = str(max(1, math.floor(bundles_of(dict(scaling))[0].resources.get("CPU", 1))))
    variables = {**asked_for.get("env_vars", {}), **env} | ({} if threads == "1" else {THREADS: threads})
    if variables.get("OMP_NUM_THREADS") == threads:  # Ray sets the same value
        del variables["OMP_NUM_THREADS"]
    return {**asked_for, "env_vars": variables} if variables else {**asked_for}
