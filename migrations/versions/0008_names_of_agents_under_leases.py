"""names of agents under leases

Stores which process uses an agent's name, and until when no other process may use it.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import Json, UtcDateTime

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("agents") as table:
        table.add_column(sa.Column("instance", Json, nullable=True))
        table.add_column(sa.Column("name_expires_at", UtcDateTime(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("agents") as table:
        table.drop_column("name_expires_at")
        table.drop_column("instance")
