"""`/healthz`: the process runs. `/readyz`: it can serve."""

from collections.abc import Mapping
from importlib.metadata import version as installed_version
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy.exc import SQLAlchemyError

from service.api.http.dependencies import Ctx
from service.api.http.routes import Route
from service.api.views.rows import View
from service.runtime.context import Context
from service.store.agents import storage_errors
from service.store.checkpoints.checkpoint_deletions import count_deletions
from service.store.mirrors import lag
from service.store.sql.database import database_now
from service.store.sql.schema_upgrade import SchemaState, state_of

router = APIRouter(tags=["health"], route_class=Route)


class Readiness(View):
    """Whether the service can serve, and what it depends on."""

    version: str
    """the version of Paceline that serves"""
    ready: bool
    """whether the database has a schema that works with this version, all needed loops work, and an agent can write to
    the storage, if agents are connected"""
    database: str
    """`ok`, or what is wrong"""
    loops: dict[str, Any]
    """the health of each background loop"""
    storage: str
    """`ok`, how many agents cannot write to the storage, or `unknown: …` without agents, or while the database is not
    ready"""
    pending_deletions: int | None
    """the number of directories that agents are to delete: of deleted experiments and of removed checkpoints; null
    while the database is not ready"""
    mlflow_url: str | None
    """where MLflow's pages are"""
    mlflow_lag: int | None
    """the number of events that are not mirrored to MLflow yet; null without a mirror, and while the database is not
    ready"""


class Liveness(View):
    """That the process runs."""

    status: str
    """always `alive`"""


@router.get("/healthz")
def get_health() -> Liveness:
    """Whether the process runs."""
    return Liveness(status="alive")


@router.get("/readyz", responses={503: {"model": Readiness, "description": "It cannot serve; the body says why"}})
def get_readiness(request: Request, response: Response, context: Ctx) -> Readiness:
    """Whether the service can serve."""
    database = _database(context)
    loops = {loop.name: loop.health() for loop in request.app.state.loops}
    errors, pending = _storage(context) if database == "ok" else (None, None)
    can_save = not errors or None in errors.values()
    ready = database == "ok" and can_save and all(health["ok"] for health in loops.values() if health["needed"])
    if not ready:
        response.status_code = 503
    return Readiness(
        version=installed_version("paceline"),
        ready=ready,
        database=database,
        loops=loops,
        storage=_describe_storage(errors),
        pending_deletions=pending,
        mlflow_url=context.settings.mlflow_ui,
        mlflow_lag=_lag(context) if database == "ok" else None,
    )


def _lag(context: Context) -> int | None:
    if context.settings.mlflow_uri is None:
        return None
    with context.database.read() as session:
        return lag(session)


def _storage(context: Context) -> tuple[dict[str, str | None], int]:
    with context.database.read() as session:
        return storage_errors(session, database_now(session)), count_deletions(session)


def _describe_storage(errors: Mapping[str, str | None] | None) -> str:
    """Without the errors themselves: this call needs no token. None: the database cannot be asked."""
    if errors is None:
        return "unknown: the database is not ready"
    away = sum(error is not None for error in errors.values())
    if away:
        return f"{away} of {len(errors)} connected agents cannot write to it; GET /v1/agents says why"
    return "ok" if errors else "unknown: no agent is connected"


def _database(context: Context) -> str:
    try:
        with context.database.engine.connect() as connection:
            state = state_of(connection)
    except SQLAlchemyError as error:
        return f"unreachable: {type(error).__name__}"
    match state:
        case SchemaState.OLDER:
            return "has an older schema; run `paceline db upgrade`"
        case SchemaState.TOO_NEW:
            return "has the schema of a later version; start that version"
        case SchemaState.FOREIGN:
            return "has the tables of another program"
        case _:
            return "ok"
