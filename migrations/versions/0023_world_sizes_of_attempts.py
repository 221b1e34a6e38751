"""world sizes of attempts

An elastic group has another number of workers from attempt to attempt. Attempts of a fixed group, and those before
this version, have none: the specification says it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("world_size", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("attempts", "world_size")
