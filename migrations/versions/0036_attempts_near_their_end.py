"""attempts near their end

A slot may wait longer for Ray's verdict on a silent node than a trial may be without a report: it tells so. A service
before this version refuses `is_ending`. It gets the heartbeat again without it, and may end the attempt as silent.
"""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("is_ending", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    op.drop_column("attempts", "is_ending")
