"""the life of access tokens

Tokens may expire and be replaced under their names, and their last use is known. Those of earlier versions never
expire.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import UtcDateTime

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

TIMES = ("expires_at", "last_used_at", "previous_expires_at")
UNIQUE = "uq_tokens_previous_digest"


def upgrade() -> None:
    with op.batch_alter_table("tokens") as table:
        for name in TIMES:
            table.add_column(sa.Column(name, UtcDateTime(), nullable=True))
        table.add_column(sa.Column("previous_digest", sa.String(64), nullable=True))
        table.create_unique_constraint(UNIQUE, ["previous_digest"])


def downgrade() -> None:
    with op.batch_alter_table("tokens") as table:
        table.drop_constraint(UNIQUE, type_="unique")
        for name in ("previous_digest", *TIMES):
            table.drop_column(name)
