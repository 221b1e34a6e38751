"""values of all objectives, constraints, pictures

Trials have the newest value of each objective and constraint. The mirror stores which state its charts show.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import Json, UtcDateTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("trials") as table:
        table.add_column(sa.Column("values", Json, nullable=True))
        table.add_column(sa.Column("violation", sa.Double(), nullable=True))
    with op.batch_alter_table("mirrors") as table:
        table.add_column(sa.Column("pictured_event", sa.BigInteger(), server_default="0", nullable=False))
        table.add_column(sa.Column("pictured_at", UtcDateTime(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("mirrors") as table:
        table.drop_column("pictured_at")
        table.drop_column("pictured_event")
    with op.batch_alter_table("trials") as table:
        table.drop_column("violation")
        table.drop_column("values")
