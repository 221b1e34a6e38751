"""pools of trials that pause

Trials paused at a milestone can compete in several pools: the brackets of hyperband. A service of an earlier version
still puts them into the only pool that existed before.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

INDEX = "ix_trials_paused"
PAUSED = sa.text("paused_milestone is not null")
AS_REACHED = """
update trials set paused_pool = coalesce(
  (select pool from milestones where trial_id = trials.id and milestone = trials.paused_milestone), 0
) where paused_milestone is not null
"""


def upgrade() -> None:
    op.add_column("trials", sa.Column("paused_pool", sa.Integer(), server_default="0", nullable=False))
    op.execute(AS_REACHED)  # after a downgrade
    _index("paused_milestone", "paused_pool", "paused_value")


def downgrade() -> None:
    _index("paused_milestone", "paused_value")
    op.drop_column("trials", "paused_pool")


def _index(*columns: str) -> None:
    op.drop_index(INDEX, "trials")
    op.create_index(
        INDEX, "trials", ["experiment_id", *columns, "number"], sqlite_where=PAUSED, postgresql_where=PAUSED
    )
