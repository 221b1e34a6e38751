"""What the mirror has written to MLflow."""

from typing import Any

from sqlalchemy import delete

from service.store.sql.database import Database
from service.store.tables import MirrorRow, MirrorRunRow


def forget(database: Database, history: Any) -> None:
    """Simulate a service that was killed before it stored its progress."""
    with database.write() as session:
        session.delete(session.get(MirrorRow, history.experiment_id))
        session.execute(delete(MirrorRunRow))


def everything(mirror: Any, history: Any) -> dict[str, Any]:
    """Return everything that MLflow has of an experiment, for comparison."""
    return {
        name: (
            run.info.run_id,
            run.info.status,
            run.info.start_time,
            run.info.end_time,
            run.data.tags,
            run.data.params,
            {key: str(mirror.curve(run, key)) for key in run.data.metrics},
        )
        for name, run in mirror.runs(history.name).items()
    }
