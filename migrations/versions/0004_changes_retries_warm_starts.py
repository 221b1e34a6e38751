"""changes, retries, warm starts

The spec of a live experiment can change, a trial can be enqueued with a key or retried, a search can start warm.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import Json

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

ENQUEUED = sa.text("enqueue_key is not null")


def upgrade() -> None:
    with op.batch_alter_table("experiments") as table:
        table.add_column(sa.Column("spec_changed_at_event", sa.BigInteger(), server_default="0", nullable=False))
    with op.batch_alter_table("trials") as table:
        table.add_column(sa.Column("enqueue_key", sa.String(length=200), nullable=True))
        table.add_column(sa.Column("forgiven_attempts", sa.Integer(), server_default="0", nullable=False))
    op.create_index(
        "ix_trials_enqueue_key",
        "trials",
        ["experiment_id", "enqueue_key"],
        sqlite_where=ENQUEUED,
        postgresql_where=ENQUEUED,
    )
    op.create_table(
        "warm_starts",
        sa.Column("experiment_id", sa.String(length=20), nullable=False),
        sa.Column("observations", Json, nullable=False),
        sa.Column("sources", Json, nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.id"],
            name=op.f("fk_warm_starts_experiment_id_experiments"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("experiment_id", name=op.f("pk_warm_starts")),
    )


def downgrade() -> None:
    op.drop_table("warm_starts")
    op.drop_index("ix_trials_enqueue_key", "trials")
    with op.batch_alter_table("trials") as table:
        table.drop_column("forgiven_attempts")
        table.drop_column("enqueue_key")
    with op.batch_alter_table("experiments") as table:
        table.drop_column("spec_changed_at_event")
