"""when functions began

The time limits of a trial count from the first line of its training function.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import UtcDateTime

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("began_at", UtcDateTime(), nullable=True))


def downgrade() -> None:
    op.drop_column("attempts", "began_at")
