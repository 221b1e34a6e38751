"""The curves of all trials of an experiment: as pages, or as one table."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from service.api.http.dependencies import Ctx, ExperimentName
from service.api.http.error_responses import error_responses
from service.api.http.pages import REPORT_KEY, Cursor, Limit, Page, from_cursor, next_cursor, to_cursor
from service.api.http.routes import Route
from service.api.http.security.revocation import RevocableStream
from service.api.trials.trial_reports import ReportView
from service.api.views.reports_csv import reports_csv
from service.errors import NotFound
from service.runtime.context import Context
from service.store.lookup import experiment_named
from service.store.reports import reports_of_experiment
from service.store.tables import ReportRow

router = APIRouter(tags=["trials"], route_class=Route)

ROWS_AT_A_TIME = 1000
BEGINNING = (0, -1)
"""Before the first report: the number of a trial, and a step of it."""


class NumberedReportView(ReportView):
    """One point of a curve, and whose it is."""

    trial: int
    """the number of the trial"""

    @classmethod
    def numbered(cls, number: int, row: ReportRow) -> "NumberedReportView":
        return cls(trial=number, **dict(ReportView.of(row)))


@router.get(
    "/v1/experiments/{experiment}/reports",
    response_model=Page[NumberedReportView],
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}, **error_responses(NotFound)},
)
def list_reports_of_experiment(
    experiment: ExperimentName,
    context: Ctx,
    table: Annotated[
        Literal["json", "csv"],
        Query(alias="format", description="`csv`: all reports as one table, a line for each metric, instead of pages"),
    ] = "json",
    cursor: Cursor = None,
    limit: Limit = 1000,
) -> Page[NumberedReportView] | Response:
    """The curves of the experiment's trials, by the number of the trial and the step."""
    after = from_cursor(REPORT_KEY, cursor) or BEGINNING
    with context.database.read() as session:
        experiment_id = experiment_named(session, experiment).id
    read = partial(_read, context, experiment_id)
    if table == "csv":
        return RevocableStream(_table(read, after), media_type="text/csv")
    rows = read(after, limit + 1)
    return Page(
        items=[NumberedReportView.numbered(*one) for one in rows[:limit]],
        next_cursor=next_cursor(rows, limit, lambda one: to_cursor(REPORT_KEY, _place(one))),
    )


def _read(context: Context, experiment_id: str, after: tuple[int, int], limit: int) -> Sequence[tuple[int, ReportRow]]:
    with context.database.read() as session:
        return reports_of_experiment(session, experiment_id, after, limit)


def _table(read: "partial[Sequence[tuple[int, ReportRow]]]", after: tuple[int, int]) -> Iterator[str]:
    """Piece by piece, each in a transaction of its own: an experiment may have millions of reports."""
    rows = read(after, ROWS_AT_A_TIME)
    yield reports_csv(rows, with_header=True)
    while rows and (rows := read(_place(rows[-1]), ROWS_AT_A_TIME)):
        yield reports_csv(rows, with_header=False)


def _place(numbered: tuple[int, ReportRow]) -> tuple[int, int]:
    number, row = numbered
    return number, row.step
