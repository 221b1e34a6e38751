"""what is kept of checkpoints

A checkpoint has a size, which holders of earlier versions do not tell; it may be pinned, and retention may
remove it. An experiment has the sum of the sizes.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import UtcDateTime

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("checkpoints", sa.Column("bytes", sa.BigInteger(), nullable=True))
    op.add_column("checkpoints", sa.Column("pinned_at", UtcDateTime(), nullable=True))
    op.add_column("checkpoints", sa.Column("removed_at", UtcDateTime(), nullable=True))
    op.add_column("checkpoints", sa.Column("removed_why", sa.String(), nullable=True))
    op.add_column("experiments", sa.Column("checkpoint_bytes", sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    """The files of removed checkpoints are gone: earlier versions must not resume from them."""
    op.execute("delete from checkpoints where removed_at is not null")
    for column in ("removed_why", "removed_at", "pinned_at", "bytes"):
        op.drop_column("checkpoints", column)
    op.drop_column("experiments", "checkpoint_bytes")
