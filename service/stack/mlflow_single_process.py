"""`mlflow server` in one process: `python -m service.stack.mlflow_single_process DIRECTORY server …`, run in DIRECTORY.

MLflow's own command imports MLflow, checks its options, prepares the database, and then starts uvicorn in a second
process, which imports MLflow again: four more CPU seconds and 190 MB. Here uvicorn runs where it would be started.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

# Before MLflow, which adds its checks of the host and the origin only if it sees that uvicorn has been imported.
import uvicorn
from mlflow import server
from mlflow.cli import cli


def main() -> None:
    # Private to MLflow; a version without it, or with another way to start uvicorn, has two processes.
    server._exec_cmd = _serve  # noqa: SLF001
    os.chdir(sys.argv.pop(1))
    cli()


def _serve(command: Sequence[str], *, extra_env: Mapping[str, str], **_: Any) -> NoReturn:
    os.environ.update(extra_env)
    uvicorn.main(command[command.index("uvicorn") + 1 :])
    sys.exit()


if __name__ == "__main__":
    main()
