"""`/healthz`: the process runs. `/readyz`: it can serve."""

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError

from service.api.http.dependencies import Ctx
from service.runtime.context import Context
from service.store.mirrors import lag
from service.store.sql.schema import is_current

router = APIRouter(tags=["health"])


class Readiness(BaseModel):
    """`ready`: the database answers and has the newest schema, and all needed background loops work.

    `mlflow_lag` counts the events that are not mirrored to MLflow yet; it is null without a mirror.
    """

    ready: bool
    database: str
    loops: dict[str, Any]
    mlflow_url: str | None
    mlflow_lag: int | None


@router.get("/healthz")
def healthz() -> dict[str, str]:
    return {"status": "alive"}


@router.get("/readyz", responses={503: {"model": Readiness}})
def readyz(request: Request, response: Response, context: Ctx) -> Readiness:
    database = _database(context)
    loops = {loop.name: loop.health() for loop in request.app.state.loops}
    ready = database == "ok" and all(health["ok"] for health in loops.values() if health["needed"])
    if not ready:
        response.status_code = 503
    return Readiness(
        ready=ready,
        database=database,
        loops=loops,
        mlflow_url=context.settings.mlflow_ui,
        mlflow_lag=_lag(context) if database == "ok" else None,
    )


def _lag(context: Context) -> int | None:
    if context.settings.mlflow_uri is None:
        return None
    with context.database.read() as session:
        return lag(session)


def _database(context: Context) -> str:
    try:
        with context.database.engine.connect() as connection:
            current = is_current(connection)
    except SQLAlchemyError as error:
        return f"away: {type(error).__name__}"
    return "ok" if current else "has another schema version; run `paceline db upgrade`"
