"""ids of 64 bits

PostgreSQL numbered decisions with 32 bits, which long trials use up. It writes their table anew, and that of the
attempts, which is locked for as long. Attempts are locked first, as by the calls of holders, which would otherwise
wait for each other and the upgrade. A package may have over 2 GiB. SQLite's `integer` has had 64 bits all along.

Deletions of checkpoints that fail are tried in turn. SQLite gave their ids again, for which an agent may repeat a
result.

A checkpoint that was unpinned right after its trial's end is removed later, also after a restart.

A downgrade leaves the wider columns, which services before this version can use.
"""

from typing import Literal

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import UtcDateTime

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

NUMBERED = ("attempts", "decisions", "checkpoint_deletions")


def upgrade() -> None:
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    if is_postgresql:
        for name in NUMBERED:
            op.alter_column(name, "id", type_=sa.BigInteger(), existing_nullable=False)
            op.execute(f"alter sequence {name}_id_seq as bigint")
        op.alter_column("packages", "size", type_=sa.BigInteger(), existing_nullable=False)
    recreate: Literal["always", "never"] = "never" if is_postgresql else "always"
    autoincrement = {"sqlite_autoincrement": True}
    with op.batch_alter_table("checkpoint_deletions", recreate=recreate, table_kwargs=autoincrement) as table:
        table.add_column(sa.Column("tried_at", UtcDateTime(), nullable=True))
    has_unpinned: sa.Column[bool] = sa.Column("has_unpinned", sa.Boolean(), server_default=sa.false(), nullable=False)
    op.add_column("experiments", has_unpinned)
    op.execute("update checkpoint_deletions set tried_at = created_at where error is not null")


def downgrade() -> None:
    op.drop_column("experiments", "has_unpinned")
    op.drop_column("checkpoint_deletions", "tried_at")
