"""steps of best reports

With `report: best`, the value of a trial is the best of its reports, and `best_step` is its step. Trials of other
experiments have none. A checkpoint has the value of the report that saved it, unless a service before this version has
stored it; such a service does not read an experiment with `report: best`.

The upgrade fills both from the stored reports, also after a downgrade. What the reports do not tell,
`service.store.sql.schema_upgrade` names before the downgrade.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import Json

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

EXPERIMENTS = sa.table("experiments", sa.column("id", sa.String), sa.column("spec", Json))

BEST_STEPS = sa.text("""
update trials set best_step = (
  select min(reports.step) from reports where reports.trial_id = trials.id and reports.value = trials.value
) where experiment_id = :experiment and value is not null
""")

CHECKPOINT_VALUES = sa.text("""
update checkpoints set value = (
  select reports.value from reports
  where reports.trial_id = checkpoints.trial_id and reports.step = checkpoints.step
  and reports.attempt = checkpoints.attempt
)
""")


def upgrade() -> None:
    op.add_column("trials", sa.Column("best_step", sa.BigInteger(), nullable=True))
    op.add_column("checkpoints", sa.Column("value", sa.Double(), nullable=True))
    op.execute(CHECKPOINT_VALUES)
    connection = op.get_bind()
    for id_, spec in connection.execute(sa.select(EXPERIMENTS.c.id, EXPERIMENTS.c.spec)).all():
        if any(objective.get("report") == "best" for objective in spec.get("objectives", [])):
            connection.execute(BEST_STEPS, {"experiment": id_})


def downgrade() -> None:
    op.drop_column("checkpoints", "value")
    op.drop_column("trials", "best_step")
