"""generations

A trial that continues with another trial's params and checkpoint has several generations, each with a run in MLflow.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import Json, UtcDateTime

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "generations",
        sa.Column("trial_id", sa.String(length=20), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("params", Json, nullable=False),
        sa.Column("donor", sa.Integer(), nullable=True),
        sa.Column("milestone", sa.BigInteger(), nullable=True),
        sa.Column("resume_uri", sa.String(), nullable=True),
        sa.Column("resume_step", sa.BigInteger(), nullable=True),
        sa.Column("first_attempt", sa.Integer(), nullable=False),
        sa.Column("began_at_event", sa.BigInteger(), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trials.id"], name=op.f("fk_generations_trial_id_trials"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trial_id", "number", name=op.f("pk_generations")),
    )
    with op.batch_alter_table("mirror_runs") as table:
        table.add_column(sa.Column("generation", sa.Integer(), server_default="0", nullable=False))
        table.drop_constraint("pk_mirror_runs", type_="primary")
        table.create_primary_key("pk_mirror_runs", ["trial_id", "generation"])


def downgrade() -> None:
    op.execute("delete from mirror_runs where generation > 0")
    with op.batch_alter_table("mirror_runs") as table:
        table.drop_constraint("pk_mirror_runs", type_="primary")
        table.drop_column("generation")
        table.create_primary_key("pk_mirror_runs", ["trial_id"])
    op.drop_table("generations")
