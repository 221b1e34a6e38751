"""digests of lease tokens

A reader of the database must not be able to report for running trials. The tokens of running attempts stay valid. Going
back gives these attempts other tokens, so their holders lose them.
"""

import hashlib
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

BY_TOKEN, BY_DIGEST = "uq_attempts_lease_token", "uq_attempts_lease_digest"


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        raw: Any = connection.connection.driver_connection
        raw.create_function("sha256_hex", 1, lambda token: hashlib.sha256(token.encode()).hexdigest())
        op.execute("pragma secure_delete = on")  # freed pages of the file must not keep the tokens
        op.execute("update attempts set lease_token = sha256_hex(lease_token)")
    else:
        op.execute("update attempts set lease_token = encode(sha256(convert_to(lease_token, 'UTF8')), 'hex')")
    with op.batch_alter_table("attempts") as table:
        table.drop_constraint(BY_TOKEN, type_="unique")
        table.alter_column("lease_token", new_column_name="lease_digest", existing_type=sa.String(64))
        table.add_column(sa.Column("lease_salt", sa.String(32), nullable=True))
    with op.batch_alter_table("attempts") as table:
        table.create_unique_constraint(BY_DIGEST, ["lease_digest"])


def downgrade() -> None:
    with op.batch_alter_table("attempts") as table:
        table.drop_constraint(BY_DIGEST, type_="unique")
        table.drop_column("lease_salt")
        table.alter_column("lease_digest", new_column_name="lease_token", existing_type=sa.String(64))
    with op.batch_alter_table("attempts") as table:
        table.create_unique_constraint(BY_TOKEN, ["lease_token"])
