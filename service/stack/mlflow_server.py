"""MLflow's server as the embedded stack runs it: one process on a SQLite database of its own."""

import contextlib
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

MLFLOW_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # Seven processes that run MLflow's own jobs, of which Paceline has none.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}


def mlflow_server(home: Path, host: str, port: int) -> Sequence[str]:
    """The command that serves what is, or will be, in `home`; it is to be run in the MLFLOW_ENVIRONMENT."""
    home.mkdir(exist_ok=True)
    database = home / "mlflow.db"
    _log_ahead(database)
    command = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{database}", "--artifacts-destination", str(home / "artifacts")]
    return [*command, "--uvicorn-opts", "--log-level warning"]


def _log_ahead(database: Path) -> None:
    """Have SQLite write a log ahead, which it then always does: one wait for the disk for each change, not three."""
    with contextlib.suppress(sqlite3.DatabaseError), contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")  # not while another process reads it; MLflow says what is wrong
