"""Reports, the busiest call, without FastAPI's routing. It is the first that a service answers after its start.

The fields of the call and of its answer are in `trainer/wire/attempt.py`;
`operations/reports/ingest.py` fills the answer.
"""

from starlette.requests import Request

from service.api.http.bodies.json_body import JsonBody
from service.api.http.direct_routes import PostPath
from service.api.http.headers import bearer_token, header
from service.api.http.queries import check_query
from service.operations.reports.ingest import ReportBatch
from service.runtime.group_commit import GroupCommit
from trainer.wire import Answer, Reports

REPORTS = "/v1/trials/{trial}/reports"
POST_REPORTS = PostPath(REPORTS)
BODY = JsonBody(Reports)


async def serve_reports(request: Request) -> Answer:
    """Answers what `attempts.send_reports` describes."""
    if request.scope["query_string"]:
        check_query(request, ())
    token = bearer_token(header(request, b"authorization"))
    message = await BODY(request)
    reporting: GroupCommit[ReportBatch, Answer] = request.app.state.reporting
    return await reporting.submit(ReportBatch(request.path_params["trial"], token, message.reports, message.world_size))
