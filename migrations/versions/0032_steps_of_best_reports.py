"""steps of best reports

With `report: best`, the value of a trial is the best of its reports, and `best_step` is its step. Trials of other
experiments have none. A checkpoint has the value of the report that saved it, unless a service before this version has
stored it; such a service does not read an experiment with `report: best`.
"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("best_step", sa.BigInteger(), nullable=True))
    op.add_column("checkpoints", sa.Column("value", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("checkpoints", "value")
    op.drop_column("trials", "best_step")
