"""choices of rules

An experiment may leave its early-stopping rule to the service, which stores why it chose one, and what it knew. In
experiments before this version users named all rules.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import Json

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("experiments", sa.Column("rule_choice", Json, nullable=True))


def downgrade() -> None:
    op.drop_column("experiments", "rule_choice")
