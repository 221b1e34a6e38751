"""costs

What attempts cost, and the sums for trials and experiments. Attempts that have ended before are in no sum, because
what they did is not known; those that run now, or wait, count from here on.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import Json, UtcDateTime

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

COLUMNS = (
    ("experiments", "cost", Json),
    ("trials", "cost", Json),
    ("trials", "queued_at", UtcDateTime()),
    ("attempts", "phases", Json),
    ("attempts", "queued_at", UtcDateTime()),
)


def upgrade() -> None:
    for table, name, kind in COLUMNS:
        op.add_column(table, sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    for table, name, _ in reversed(COLUMNS):
        op.drop_column(table, name)
