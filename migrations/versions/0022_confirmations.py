"""confirmations

A trial may run the params of another one again, with a seed of its own. Trials of earlier versions do not.
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("confirms", sa.Integer(), nullable=True))
    op.add_column("trials", sa.Column("seed", sa.BigInteger(), nullable=True))
    op.create_index(
        "uq_trials_confirms",
        "trials",
        ["experiment_id", "confirms", "seed"],
        unique=True,
        sqlite_where=sa.text("confirms is not null"),
        postgresql_where=sa.text("confirms is not null"),
    )


def downgrade() -> None:
    """To earlier versions, confirmations are trials like others, and may be the best."""
    op.drop_index("uq_trials_confirms", "trials")
    op.drop_column("trials", "seed")
    op.drop_column("trials", "confirms")
