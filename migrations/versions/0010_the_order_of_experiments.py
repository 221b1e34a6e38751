"""the order of experiments

Indexes order experiments as they are listed, over all statuses and per status.
"""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

BY_STATUS_ALONE, BY_STATUS, ALL = (
    "ix_experiments_status",
    "ix_experiments_status_created_at_id",
    "ix_experiments_created_at_id",
)


def upgrade() -> None:
    op.drop_index(BY_STATUS_ALONE, "experiments")
    op.create_index(BY_STATUS, "experiments", ["status", "created_at", "id"])
    op.create_index(ALL, "experiments", ["created_at", "id"])


def downgrade() -> None:
    op.drop_index(ALL, "experiments")
    op.drop_index(BY_STATUS, "experiments")
    op.create_index(BY_STATUS_ALONE, "experiments", ["status"])
