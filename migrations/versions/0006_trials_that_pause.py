"""trials that pause

A trial can pause at a milestone. One index finds the trials paused there, another one the next queued trial.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

INDEX = "ix_trials_paused"
BY_STATUS = "ix_trials_experiment_id_status"
BY_STATUS_IN_ORDER = "ix_trials_experiment_id_status_number"
CHECK = "ck_trials_status_known"
BEFORE = "status in ('queued', 'running', 'completed', 'pruned', 'failed', 'stopped')"
AFTER = "status in ('queued', 'running', 'paused', 'completed', 'pruned', 'failed', 'stopped')"
PAUSED = sa.text("paused_milestone is not null")


def upgrade() -> None:
    _know(AFTER)
    with op.batch_alter_table("trials") as table:
        table.add_column(sa.Column("paused_milestone", sa.BigInteger(), nullable=True))
        table.add_column(sa.Column("paused_value", sa.Double(), nullable=True))
    op.create_index(
        INDEX,
        "trials",
        ["experiment_id", "paused_milestone", "paused_value", "number"],
        sqlite_where=PAUSED,
        postgresql_where=PAUSED,
    )
    op.drop_index(BY_STATUS, "trials")
    op.create_index(BY_STATUS_IN_ORDER, "trials", ["experiment_id", "status", "number"])


def downgrade() -> None:
    op.execute("update trials set status = 'pruned', ended_at = current_timestamp where status = 'paused'")
    op.drop_index(BY_STATUS_IN_ORDER, "trials")
    op.create_index(BY_STATUS, "trials", ["experiment_id", "status"])
    op.drop_index(INDEX, "trials")
    with op.batch_alter_table("trials") as table:
        table.drop_column("paused_value")
        table.drop_column("paused_milestone")
    _know(BEFORE)


def _know(statuses: str) -> None:
    """SQLite copies the table, for which `service.store.sql.schema_upgrade.upgrade` turns foreign keys off."""
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint(op.f(CHECK), "trials", type_="check")
        op.create_check_constraint(op.f(CHECK), "trials", statuses)
        return
    if op.get_bind().scalar(sa.text("pragma foreign_keys")):
        raise RuntimeError("with foreign keys on, the old table would take all that belongs to its trials along")
    # Reflection does not see check constraints, so the copy has only the new one.
    with op.batch_alter_table("trials", recreate="always") as table:
        table.create_check_constraint(op.f(CHECK), statuses)
