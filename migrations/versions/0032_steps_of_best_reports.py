"""steps of best reports

With `report: best`, the value of a trial is the best of its reports, and this is its step. Trials of other experiments,
and those before this version, have none. Services before this version do not read an experiment with `report: best`.
"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("best_step", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("trials", "best_step")
