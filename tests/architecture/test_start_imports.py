"""What a process imports before it does anything: a killed service is back soon, and a command answers soon."""

import subprocess
import sys
from pathlib import Path

import pytest

from service.settings import Settings
from service.store.sql.database import Database
from service.store.sql.schema import upgrade

START_OF_SERVICE = """
from service.cli import serve_alone, server
from service.cli.upgraded_database import upgraded_database
from service.settings import Settings
with upgraded_database(Settings.from_env()):
    pass
app = server.StagedApp(Settings.from_env())
"""
SECOND_STAGE = f"{START_OF_SERVICE}\nfrom service.complete_app import build\nbuild(app.state)"
COMMAND_LINE = "import service.cli.all_commands"
SLOW = ("scipy", "alembic", "mlflow", "matplotlib", "pandas", "ray", "torch", "requests", "mako")
NOT_FOR_A_REPORT = (
    "service.complete_app",
    "service.api.attempts",
    "service.api.openapi.document",
    "service.background.loop",
    "service.cli.all_commands",
    "service.cli.client",
    "fastapi",
    "httpx",
    "numpy",
    "optuna",
    "opentelemetry",
    "pydantic.v1",
    "rich.console",
    "yaml",
    *SLOW,
)
"""What a service that starts imports only after it answers reports."""
NOT_FOR_A_COMMAND = ("sqlalchemy", "uvicorn", "fastapi", "optuna", "numpy", "psutil", "yaml", "trainer.wire", *SLOW)


PRINT_SOURCE_FILES = """
import linecache
print([name for name in linecache.cache if name.endswith(".py") and "site-packages" not in name])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "unwanted"),
    [(START_OF_SERVICE, NOT_FOR_A_REPORT), (SECOND_STAGE, SLOW), (COMMAND_LINE, NOT_FOR_A_COMMAND)],
)
def test_slow_libraries_are_not_imported_at_the_start(code: str, unwanted: tuple[str, ...], tmp_path: Path) -> None:
    listing = f"{code}\nimport sys\nprint([name for name in {unwanted!r} if name in sys.modules])"
    assert printed(listing, tmp_path) == "[]"


@pytest.mark.slow
def test_the_start_reads_no_source_files(tmp_path: Path) -> None:
    """Only OpenAPI's document needs the docstrings of fields (`search.field_descriptions`)."""
    assert printed(SECOND_STAGE + PRINT_SOURCE_FILES, tmp_path) == "[]"


def printed(code: str, directory: Path) -> str:
    """What the code prints in a process of its own, with an empty database of the newest schema."""
    env = {"PACELINE_DATA_DIR": str(directory), "PATH": "", "PACELINE_MLFLOW_URI": "http://127.0.0.1:9"}
    database = Database(Settings.from_env(env).database_url)
    upgrade(database)
    database.close()
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    return done.stdout.strip()
