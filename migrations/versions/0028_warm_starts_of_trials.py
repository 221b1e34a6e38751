"""warm starts of trials

A trial of a search with a warm start says how much each earlier experiment weighed. Trials before this version do not.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import Json

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("warm_start", Json, nullable=True))


def downgrade() -> None:
    op.drop_column("trials", "warm_start")
