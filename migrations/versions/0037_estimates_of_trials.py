"""estimates of trials

What the sampler's model expected of a trial when it proposed it. It cannot be computed later, since the history has
changed by then; trials of earlier versions have none.
"""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("estimate", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("trials", "estimate")
