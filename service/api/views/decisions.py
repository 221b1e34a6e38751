"""Early-stopping decisions as the API shows them."""

from datetime import datetime

from service.api.views.rows import RowView
from service.domain.decision_grounds import GroundsModel


class DecisionView(GroundsModel, RowView):
    """The answer to a report, or the decision on a paused trial."""

    decision: str
    """`continue`, `stop`, `pause`, `promote` or `exploit`"""
    rule: str
    """the rule that decided"""
    metric: str
    """what trials were compared by"""
    step: int
    """the step of the report"""
    attempt: int
    """the number of the attempt"""
    at: datetime
    """when it was decided"""
