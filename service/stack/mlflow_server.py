"""The MLflow server of the embedded stack: one process on a SQLite database of its own."""

import contextlib
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

MLFLOW_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # Otherwise the server starts seven processes for MLflow's own jobs. Paceline uses none of them.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}


LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def mlflow_server_command(home: Path, host: str, port: int, hosts: Sequence[str] = ()) -> Sequence[str]:
    """Return the command that serves the database and artifacts in `home`; run it with MLFLOW_ENVIRONMENT.

    `hosts` are further names, as in PACELINE_HOSTS, by which browsers may reach the server.
    """
    home.mkdir(exist_ok=True)
    database = home / "mlflow.db"
    _enable_write_ahead_log(database)
    command = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{database}", "--artifacts-destination", str(home / "artifacts")]
    command += ["--allowed-hosts", ",".join(_host_patterns([*LOOPBACK, *hosts]))]
    command += ["--cors-allowed-origins", ",".join(f"http://{name}:{port}" for name in LOOPBACK)]
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
