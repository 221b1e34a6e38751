"""services of one database

Several services tell each other, and the holders of leases, their addresses. A holder that knows no other address than
the one of a service that is away keeps its lease.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import UtcDateTime

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "services",
        sa.Column("name", sa.String(length=300), nullable=False),
        sa.Column("url", sa.String(length=300), nullable=True),
        sa.Column("seen_at", UtcDateTime(), nullable=False),
        sa.Column("reachable_since", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_services"),
    )
    op.add_column("attempts", sa.Column("service", sa.String(length=300), nullable=True))


def downgrade() -> None:
    op.drop_column("attempts", "service")
    op.drop_table("services")
