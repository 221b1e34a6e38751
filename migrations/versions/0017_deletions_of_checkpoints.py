"""deletions of checkpoints

Checkpoints are deleted with their experiment, and agents tell whether they can write to the storage.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import UtcDateTime

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "checkpoint_deletions",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("agent", sa.String(200), nullable=False),
        sa.Column("directory", sa.String(), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
    )
    op.create_index("ix_checkpoint_deletions_agent", "checkpoint_deletions", ["agent"])
    op.add_column("agents", sa.Column("storage_error", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("agents", "storage_error")
    op.drop_table("checkpoint_deletions")
