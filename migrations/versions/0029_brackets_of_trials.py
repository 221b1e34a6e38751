"""brackets of trials

Under `hyperband` with `weighted`, a trial is created with a bracket that depends on what has completed. Trials before
this version, and those that a service of the version before creates, have none: their bracket follows from their
number.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import Json

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("bracket", Json, nullable=True))


def downgrade() -> None:
    op.drop_column("trials", "bracket")
