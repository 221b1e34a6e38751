"""What a process imports before it does anything: a killed service is back soon, and a command answers soon."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from service.settings import Settings
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import upgrade
from tests.conftest import Api

START_OF_SERVICE = """
from service.cli import serve_alone, server
from service.cli.upgraded_database import upgraded_database
from service.settings import Settings
with upgraded_database(Settings.from_env()):
    pass
app = server.StagedApp(Settings.from_env())
"""
STORES_A_REPORT = f"""{START_OF_SERVICE}
import os
from service.operations.reports.ingest import ReportBatch, ingest_reports
from trainer.wire import Answer, Report
batch = ReportBatch(os.environ["TRIAL"], os.environ["TOKEN"], [Report(sequence=0, metrics={{"accuracy": 0.5}})])
(answer,) = ingest_reports(app.state.context, [batch])
assert isinstance(answer, Answer), answer
"""
SECOND_STAGE = f"{START_OF_SERVICE}\nfrom service.app.application import build\nbuild(app.state)"
COMMAND_LINE = "import service.cli.all_commands"
SLOW = ("scipy", "alembic", "mlflow", "matplotlib", "pandas", "ray", "torch", "requests", "mako")
NOT_FOR_A_REPORT = (
    "service.app.application",
    "service.api.attempts.holder_calls",
    "service.api.openapi.document",
    "service.background.loop",
    "service.cli.all_commands",
    "service.cli.client.client",
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


AHEAD = """
from service.runtime.computation.numeric_libraries import import_ahead
import_ahead()
"""
THREADS_OF_LIBRARIES = """
from threadpoolctl import threadpool_info
print(sorted({(library["internal_api"], library["num_threads"]) for library in threadpool_info()}))
"""

LISTING = "{code}\nimport sys\nprint([name for name in {unwanted!r} if name in sys.modules])"
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
    assert printed(LISTING.format(code=code, unwanted=unwanted), tmp_path) == "[]"


RULES = [
    {"rule": "none"},
    {"rule": "asha", "min_step": 1, "reduction_factor": 3},
    {"rule": "hyperband", "min_step": 1, "max_step": 9, "reduction_factor": 3},
    {"rule": "median"},
    {"rule": "patient", "patience": 3},
]


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["rule"]))
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_first_report_imports_nothing_slow(service: Api, rule: dict[str, Any]) -> None:
    """Whatever its experiment searches and stops with."""
    settings: Settings = service.app.state.context.settings
    held = service.ask(service.create(search={"sampler": "tpe"}, early_stopping=rule)["name"])
    assert held
    env = {
        "PACELINE_DATA_DIR": str(settings.data_dir),
        "PACELINE_DATABASE_URL": settings.database_url,
        "TRIAL": held.trial,
        "TOKEN": held.assignment["lease"]["token"],
    }
    assert printed_with(LISTING.format(code=STORES_A_REPORT, unwanted=NOT_FOR_A_REPORT), env) == "[]"


@pytest.mark.slow
def test_the_start_reads_no_source_files(tmp_path: Path) -> None:
    """Only OpenAPI's document needs the docstrings of fields (`search.field_descriptions`)."""
    assert printed(SECOND_STAGE + PRINT_SOURCE_FILES, tmp_path) == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("then", ["", AHEAD], ids=["of NumPy", "of SciPy, too"])
def test_numeric_libraries_have_one_thread_each(then: str, tmp_path: Path) -> None:
    """A proposal's matrices are small. Without the limit the libraries take all processors for each of them."""
    found = printed(SECOND_STAGE + then + THREADS_OF_LIBRARIES, tmp_path, {"OPENBLAS_NUM_THREADS": "3"})
    assert found == "[('openblas', 1)]"


def printed(code: str, directory: Path, variables: Mapping[str, str] = MappingProxyType({})) -> str:
    """What the code prints in a process of its own, with an empty database of the newest schema."""
    env = {"PACELINE_DATA_DIR": str(directory), "PACELINE_MLFLOW_URI": "http://127.0.0.1:9", **variables}
    database = Database(Settings.from_env(env).database_url)
    upgrade(database)
    database.close()
    return printed_with(code, env)


def printed_with(code: str, env: dict[str, str]) -> str:
    command, root = [sys.executable, "-c", code], Path(__file__).parents[2]
    done = subprocess.run(command, env=env | {"PATH": ""}, cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()
