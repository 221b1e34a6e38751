"""Checks of the service's settings, on the machine where they are set: the database, the data directory, MLflow."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from search.samplers import SAMPLERS
from search.samplers.sampler import lacking_of
from service.cli.doctor.check import Check, failed, ok, warning
from service.cli.doctor.mlflow_check import why_no_answer
from service.cli.upgraded_database import outage_reason
from service.settings import BadSettings, Settings, without_credentials, without_password
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import SchemaState, state_of

SETTINGS = {"PACELINE_DATABASE_URL", "PACELINE_DATA_DIR", "PACELINE_STORAGE", "PACELINE_MLFLOW_URI"}
LITTLE_SPACE = 5_000_000_000


def check_settings(env: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Nothing, where none of the service's settings is set: only clients run here. Nothing is created or changed."""
    if not SETTINGS & set(env):
        return
    try:
        settings = Settings.from_env(env)
    except BadSettings as error:
        yield failed("settings", str(error), "see docs/reference/settings.md")
        return
    yield _data_directory(settings)
    yield _database(settings)
    yield _samplers()
    if settings.mlflow_uri:
        yield _mlflow(settings.mlflow_uri)


def _data_directory(settings: Settings) -> Check:
    directory = settings.data_dir
    if not directory.is_dir():
        return warning("data directory", f"{directory} does not exist", "start the service; it creates the directory")
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        return failed("data directory", f"{directory} cannot be written", "give the service's user write permission")
    free = shutil.disk_usage(directory).free
    found = f"{directory} has {free / 1e9:,.1f} GB free"
    if free < LITTLE_SPACE:
        return warning("data directory", found, "free some space: packages, logs and an SQLite database are kept there")
    return ok("data directory", found)


def _samplers() -> Check:
    lacking = {name: missing for name, kind in SAMPLERS.items() if (missing := lacking_of(kind))}
    if not lacking:
        return ok("samplers", "all have the libraries that they need")
    found = "; ".join(f"{name} {missing}" for name, missing in lacking.items())
    advice = "experiments that name it are refused, and auto does not choose it; install the library if you want it"
    return warning("samplers", found, advice)


def _database(settings: Settings) -> Check:
    database = Database(settings.database_url)
    url = without_password(database.engine.url.render_as_string())
    if database.is_sqlite and not Path(database.engine.url.database or "").exists():  # connecting would create it
        return warning("database", f"{url} does not exist", "start the service; it creates the database")
    try:
        with database.engine.connect() as connection:
            state = state_of(connection)
    except SQLAlchemyError as error:
        found = f"{url} does not answer: {outage_reason(error)}"
        return failed("database", found, "see PACELINE_DATABASE_URL and the server's log")
    finally:
        database.close()
    return _schema(url, state)


def _schema(url: str, state: SchemaState) -> Check:
    match state:
        case SchemaState.OLDER:
            return failed("database", f"{url} has an older schema", "run `paceline db upgrade`")
        case SchemaState.TOO_NEW:
            return failed("database", f"{url} has the schema of a later version", "run that version")
        case SchemaState.FOREIGN:
            return failed("database", f"{url} belongs to another program", "see PACELINE_DATABASE_URL")
        case SchemaState.NEWER:
            return ok("database", f"{url} answers; a later version has upgraded its schema, which works with this one")
        case SchemaState.CURRENT:
            return ok("database", f"{url} answers, with the newest schema")


def _mlflow(uri: str) -> Check:
    shown = without_credentials(uri)
    reason = why_no_answer(uri)
    if reason is None:
        return ok("MLflow", f"{shown} answers")
    advice = "start it, or set PACELINE_MLFLOW_URI. Trials go on; the mirror catches up when it answers"
    return warning("MLflow", f"{shown} does not answer: {reason}", advice)
