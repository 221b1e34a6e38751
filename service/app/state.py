"""The state that both stages of the application share."""

from functools import partial

from prometheus_client import CollectorRegistry, ProcessCollector
from starlette.datastructures import State

from service.api.http.bodies.body_budget import BodyBudget
from service.api.http.request_log import request_seconds
from service.operations.reports.ingest import ingest_reports
from service.runtime.computation.compute_pool import ComputePool
from service.runtime.context import Context
from service.runtime.events.open_stream_limit import follower_streams
from service.runtime.group_commit import GroupCommit
from service.settings import Settings
from service.store.sql.database import Database


def new_state(settings: Settings) -> State:
    """The database must have the newest schema (`service.store.sql.schema_upgrade.upgrade`)."""
    context = Context(
        settings,
        Database(settings.database_url),
        compute=ComputePool(settings.compute_seconds),
        followers=follower_streams(settings.max_followers),
    )
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return State(
        {
            "context": context,
            "reporting": GroupCommit("reporting", partial(ingest_reports, context)),
            "body_budget": BodyBudget.of(settings.max_package_bytes),
            "loops": [],
            "registry": registry,
            "request_seconds": request_seconds(registry),
        }
    )
