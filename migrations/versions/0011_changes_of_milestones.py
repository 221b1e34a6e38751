"""changes of milestones

A process that has cached the milestones of an experiment reads only the rows that changed since. They are no longer
ranked in the database. No process would read a row without its change number, so a service of an earlier version that
still runs must fail to write one.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

BY_VALUE = "ix_milestones_experiment_id_milestone_pool_value_number"
BY_CHANGE = "ix_milestones_experiment_id_change"


def upgrade() -> None:
    with op.batch_alter_table("experiments") as table:
        table.add_column(sa.Column("milestone_count", sa.BigInteger(), server_default="0", nullable=False))
    op.drop_index(BY_VALUE, "milestones")
    with op.batch_alter_table("milestones") as table:
        table.add_column(sa.Column("change", sa.BigInteger(), server_default="0", nullable=False))
    with op.batch_alter_table("milestones") as table:
        table.alter_column("change", server_default=None)
    op.create_index(BY_CHANGE, "milestones", ["experiment_id", "change"])


def downgrade() -> None:
    op.drop_index(BY_CHANGE, "milestones")
    op.drop_column("milestones", "change")
    op.create_index(BY_VALUE, "milestones", ["experiment_id", "milestone", "pool", "value", "number"])
    # Not in a batch: copying the table would drop the rows that refer to it.
    op.drop_column("experiments", "milestone_count")
