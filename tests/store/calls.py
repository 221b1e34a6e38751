"""One caller's reports, stored as the API stores them."""

from collections.abc import Sequence

from service.operations.reports.ingest import ReportBatch, ingest_reports
from service.runtime.context import Context
from trainer.wire import Answer, Report


def take_reports(context: Context, trial_id: str, token: str | None, reports: Sequence[Report]) -> Answer:
    [answer] = ingest_reports(context, [ReportBatch(trial_id, token, reports)])
    if isinstance(answer, Exception):
        raise answer
    return answer
