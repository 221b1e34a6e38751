"""system metrics of attempts

An attempt sums up how busy its nodes and GPUs were. Attempts before this version have no samples.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import Json

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("utilization", Json, nullable=True))


def downgrade() -> None:
    op.drop_column("attempts", "utilization")
