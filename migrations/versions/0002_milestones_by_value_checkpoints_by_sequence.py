"""milestones by value, checkpoints by sequence

An index ranks a trial among thousands without reading them. Checkpoints have the attempt's sequence, which orders them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

INDEX = "ix_milestones_experiment_id_milestone_value_trial_id"


def upgrade() -> None:
    op.create_index(INDEX, "milestones", ["experiment_id", "milestone", "value", "trial_id"])
    with op.batch_alter_table("checkpoints") as table:
        table.add_column(sa.Column("sequence", sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    with op.batch_alter_table("checkpoints") as table:
        table.drop_column("sequence")
    op.drop_index(INDEX, "milestones")
