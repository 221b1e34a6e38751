"""the order by value

Indexes order trials by value and number, over all statuses and per status. Running experiments with population-based
training, which had no last step before, get one that they never reach.
"""

import sqlalchemy as sa
from alembic import op

from service.store.sql.column_types import Json

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

BEFORE, AFTER = "ix_trials_experiment_id_value", "ix_trials_experiment_id_value_number"
BY_STATUS = "ix_trials_experiment_id_status_value_number"
NEVER = 2**53
EXPERIMENTS = sa.table("experiments", sa.column("id", sa.String), sa.column("spec", Json))


def upgrade() -> None:
    op.drop_index(BEFORE, "trials")
    op.create_index(AFTER, "trials", ["experiment_id", "value", "number"])
    op.create_index(BY_STATUS, "trials", ["experiment_id", "status", "value", "number"])
    _give_populations_a_last_step()


def downgrade() -> None:
    op.drop_index(BY_STATUS, "trials")
    op.drop_index(AFTER, "trials")
    op.create_index(BEFORE, "trials", ["experiment_id", "value"])


def _give_populations_a_last_step() -> None:
    for id_, spec in op.get_bind().execute(sa.select(EXPERIMENTS.c.id, EXPERIMENTS.c.spec)).all():
        rule = spec.get("early_stopping") or {}
        if rule.get("rule") == "pbt" and rule.get("max_step") is None:
            whole = spec | {"early_stopping": rule | {"max_step": NEVER}}
            op.execute(sa.update(EXPERIMENTS).where(EXPERIMENTS.c.id == id_).values(spec=whole))
