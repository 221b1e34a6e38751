"""How nodes of our own differ from what `ray start` starts by itself.

Ray calls `change` if the variable RAY_START_HOOK names it.
"""

import os
from pathlib import Path
from typing import Any

from ray._private import services

from trainer.ray_train.processes import setup_worker

NODES_OWN = ("PACELINE_STACK", "PACELINE_OOM_COUNTER")
"""Paceline's variables that concern the processes of a node: by the first one, `up` finds all of its own."""


def change(parameters: Any, _is_head: bool) -> None:
    """`parameters` are Ray's `RayParams`, before anything is started."""
    remove_settings()
    parameters.setup_worker_path = str(Path(setup_worker.__file__).resolve())
    parameters.ray_client_server_port = None  # an open port, and 100 MB, for drivers on other machines
    if parameters.include_dashboard is False:
        leave_out_dashboard()


def remove_settings() -> None:
    """Take the settings of services and agents out of the environment, which all workers, and so user code, inherit."""
    for name in [name for name in os.environ if name.startswith("PACELINE_") and name not in NODES_OWN]:
        del os.environ[name]


def leave_out_dashboard() -> None:
    """Start no process of a dashboard that is not wanted.

    Ray starts it all the same, for its usage statistics, and waits for it before it starts anything else of the node.
    """

    def start_nothing(*_: object, **__: object) -> tuple[str, None]:
        return "", None

    services.start_api_server = start_nothing
