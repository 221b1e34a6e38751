"""reports that do not count

Reports that were made after the deciding one of their attempt are kept apart from the curve. A downgrade drops them.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import Json, UtcDateTime

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("deciding_sequence", sa.BigInteger(), nullable=True))
    op.create_table(
        "uncounted_reports",
        sa.Column("trial_id", sa.String(length=20), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("metrics", Json, nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trials.id"], name="fk_uncounted_reports_trial_id_trials", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trial_id", "attempt", "sequence", name="pk_uncounted_reports"),
    )


def downgrade() -> None:
    op.drop_table("uncounted_reports")
    op.drop_column("attempts", "deciding_sequence")
