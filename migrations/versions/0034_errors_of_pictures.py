"""errors of pictures

Why the pictures of an experiment are not in MLflow, if MLflow or a proxy refuses them. A service before this version
neither writes nor clears the column: what it shows is cleared when pictures are drawn by a later one.
"""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("mirrors", sa.Column("pictures_error", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("mirrors", "pictures_error")
