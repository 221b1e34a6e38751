"""Has everything mirrored to MLflow again, as into a new server, or one that has lost runs."""

from collections.abc import Sequence

from service.store import mirrors
from service.store.lookup import experiment_named
from service.store.sql.database import Database, lift_statement_timeout


def mirror_again(database: Database, names_or_ids: Sequence[str]) -> int:
    """Forget what MLflow has of these experiments, of all without a name; return their number. Raises NotFound.

    The service then writes all their events again. Runs that MLflow has are found by their tags and used.
    """
    with database.write() as session:
        lift_statement_timeout(session.connection())
        if not names_or_ids:
            return mirrors.remove_all(session)
        ids = {experiment_named(session, name).id for name in names_or_ids}
        mirrors.remove(session, ids)
        return len(ids)
