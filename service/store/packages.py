"""Queries on packages."""

from collections.abc import Sequence

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from service.store.tables import ExperimentRow, PackageRow

_USED = ExperimentRow.spec["trainer"]["package"].as_string()


def hold_package(session: Session, package_id: str) -> bool:
    """Keep the package from being removed until the end of the transaction. Return False if it does not exist."""
    query = select(PackageRow.id).where(PackageRow.id == package_id).with_for_update(read=True)
    return session.scalar(query) is not None


def has_experiment(session: Session, package_id: str) -> bool:
    """Whether an experiment uses the package."""
    return bool(session.scalar(select(exists().where(package_id == _USED))))


def packages_without_experiment(session: Session) -> Sequence[str]:
    used = select(_USED).where(_USED.is_not(None))
    return session.scalars(select(PackageRow.id).where(PackageRow.id.not_in(used)).order_by(PackageRow.id)).all()
