"""The command and the environment of the stack's MLflow server: one process on a SQLite database of its own."""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from service.module_command import module_command

MLFLOW_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # Otherwise the server starts seven processes for MLflow's own jobs. Paceline uses none of them.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}


LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def mlflow_server_environment(port: int, hosts: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables for the server's environment: who may reach it, besides MLFLOW_ENVIRONMENT.

    `hosts` are further names, as in PACELINE_HOSTS, by which browsers may reach the server.
    """
    return MLFLOW_ENVIRONMENT | {
        "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(_host_patterns([*LOOPBACK, *hosts])),
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": ",".join(f"http://{name}:{port}" for name in LOOPBACK),
    }


def mlflow_server_command(home: Path, host: str, port: int) -> Sequence[str]:
    """Return the command that serves the database and artifacts in `home`; run it with the server's environment."""
    home.mkdir(exist_ok=True)
    database = home / "mlflow.db"
    _enable_write_ahead_log(database)
    command = module_command("service.stack.mlflow_single_process", str(home.absolute()), "server")
    command += ["--host", host, "--port", str(port), "--workers", "1"]
    # Relative to `home`: a path may have characters with a meaning in a URL, and MLflow decodes them more than once.
    command += ["--backend-store-uri", f"sqlite:///{database.name}", "--artifacts-destination", "artifacts"]
    return [*command, "--uvicorn-opts", "--log-level warning"]


def _host_patterns(hosts: Sequence[str]) -> Iterator[str]:
    """Each host without a port and with any port. MLflow's own patterns also admit `10.evil.test` and the like."""
    for host in hosts:
        yield host
        yield f"{host.replace('[', '[[]')}:*"


def _enable_write_ahead_log(database: Path) -> None:
    """Set WAL mode, which SQLite remembers in the file: each change then costs one fsync instead of three."""
    # It fails while another process reads the database, and on a damaged file, which MLflow then reports.
    with contextlib.suppress(sqlite3.DatabaseError), contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
