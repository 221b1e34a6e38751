"""oldest services that work with the schema

Services of two versions work on one database while it is upgraded. From here on a service that finds a newer schema
learns from this row whether it may work with it. A migration that only adds leaves the row as it is. One that removes
or renames what services before a certain revision use comes a release later, and stores that revision here.
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "schema_compatibility",
        sa.Column("oldest_revision", sa.String(length=10), nullable=False),
        sa.PrimaryKeyConstraint("oldest_revision", name="pk_schema_compatibility"),
    )
    op.execute("insert into schema_compatibility (oldest_revision) values ('0024')")


def downgrade() -> None:
    op.drop_table("schema_compatibility")
