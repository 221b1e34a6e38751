"""traces

The W3C `traceparent` of the call that submitted an experiment, and of each attempt: a repeated claim gets the same
one, and the traces of later processes continue or link to them. Without tracing, and before this version, there is
none.
"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("experiments", sa.Column("traceparent", sa.String(55), nullable=True))
    op.add_column("attempts", sa.Column("traceparent", sa.String(55), nullable=True))


def downgrade() -> None:
    op.drop_column("attempts", "traceparent")
    op.drop_column("experiments", "traceparent")
