"""pools of trials to compare with

Trials are compared within a pool (a bracket, or the completed trials), by an index alone. Decisions name some of them.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import Json

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

OLD_INDEX = "ix_milestones_experiment_id_milestone_value_trial_id"
INDEX = "ix_milestones_experiment_id_milestone_pool_value_number"

COMPLETED = """
update milestones set pool = -1 where experiment_id = :experiment
and trial_id in (select id from trials where experiment_id = :experiment and status = 'completed')
"""
AT_END = """
insert into milestones (experiment_id, milestone, trial_id, number, pool, value)
select experiment_id, -1, id, number, -1, value from trials
where experiment_id = :experiment and status = 'completed' and value is not null
"""


def upgrade() -> None:
    op.drop_index(OLD_INDEX, "milestones")
    with op.batch_alter_table("milestones") as table:
        table.add_column(sa.Column("number", sa.Integer(), server_default="0", nullable=False))
        table.add_column(sa.Column("pool", sa.Integer(), server_default="0", nullable=False))
    with op.batch_alter_table("decisions") as table:
        table.add_column(sa.Column("compared_with", Json, server_default="[]", nullable=False))
    op.execute("update milestones set number = (select number from trials where trials.id = milestones.trial_id)")
    _move_completed()
    op.create_index(INDEX, "milestones", ["experiment_id", "milestone", "pool", "value", "number"])


def _move_completed() -> None:
    """Experiments with the median rule compare with completed trials only."""
    connection = op.get_bind()
    experiments = sa.table("experiments", sa.column("id", sa.String), sa.column("spec", Json))
    for experiment, spec in connection.execute(sa.select(experiments.c.id, experiments.c.spec)).all():
        if (spec.get("early_stopping") or {}).get("rule") == "median":
            connection.execute(sa.text(COMPLETED), {"experiment": experiment})
            connection.execute(sa.text(AT_END), {"experiment": experiment})


def downgrade() -> None:
    op.drop_index(INDEX, "milestones")
    op.execute("delete from milestones where milestone < 0")
    with op.batch_alter_table("decisions") as table:
        table.drop_column("compared_with")
    with op.batch_alter_table("milestones") as table:
        table.drop_column("pool")
        table.drop_column("number")
    op.create_index(OLD_INDEX, "milestones", ["experiment_id", "milestone", "value", "trial_id"])
