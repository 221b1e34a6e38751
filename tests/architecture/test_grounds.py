"""The grounds of a decision are defined by the search; the other forms of them follow."""

from dataclasses import fields

from search.early_stopping.decision import Grounds
from service.domain import decision_grounds
from service.mirror.runs import trial_run_update
from service.store.tables import DecisionRow

FIELDS = {field.name for field in fields(Grounds)}


def test_views_and_replays_show_all_grounds() -> None:
    assert set(decision_grounds.GroundsModel.model_fields) == FIELDS


def test_stored_decisions_have_all_grounds() -> None:
    assert set(DecisionRow.__table__.columns.keys()) >= FIELDS


def test_the_mirror_tags_all_grounds() -> None:
    assert set(trial_run_update._DECISION_TAGS) >= FIELDS
