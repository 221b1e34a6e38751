"""sources of params

A trial says what its params were taken from. Trials of earlier versions do not know.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("source", sa.String(length=20), nullable=True))


def downgrade() -> None:
    op.drop_column("trials", "source")
