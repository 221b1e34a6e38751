"""The service's application in two stages: it answers reports first, then everything else.

What only the second stage needs, such as FastAPI, is imported then (`service.app.application`): imports are most of
a start's time: a service that was killed answers reports again after about half of them.
"""

import asyncio
from contextlib import suppress
from importlib import import_module

from starlette.datastructures import State
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.attempts import report_ingest
from service.api.http.problems import ERROR_HANDLERS
from service.app.lifespan import running
from service.app.middleware import RequestsLogged, add_middleware
from service.app.state import new_state
from service.settings import Settings

FIRST_ANSWER_SECONDS = 0.05


class StagedApp:
    """Answers reports, also later: FastAPI would add to the work. Other calls wait for `complete`.

    With tracing reports wait, too: the complete application makes the spans.
    """

    def __init__(self, settings: Settings) -> None:
        """The database must have the newest schema (`service.store.sql.schema_upgrade.upgrade`)."""
        self.state = new_state(settings)
        self._first = _FirstStage(self.state)
        self._app: ASGIApp | None = None
        self._first_answer = asyncio.Event()
        self._completed = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_for_first_stage(scope):
            await self._first(scope, receive, send)
            if scope["type"] == "http":
                self._first_answer.set()
            return
        await self._completed.wait()
        assert self._app is not None  # noqa: S101 - it is completed
        await self._app(scope, receive, send)

    async def complete(self) -> None:
        """The second stage: import, in a thread, all that the first one left out; then answer all calls.

        If reports come at once, the first of them are answered before, because the imports would slow them down.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(self._first_answer.wait(), FIRST_ANSWER_SECONDS)
        app = await asyncio.to_thread(lambda: import_module("service.app.application").build(self.state))
        import_module("service.app.application").start_loops(app.state)
        self._app = app
        self._completed.set()

    def _is_for_first_stage(self, scope: Scope) -> bool:
        return not self.state.context.settings.tracing and report_ingest.POST_REPORTS.parameters(scope) is not None


class _FirstStage(RequestsLogged):
    def __init__(self, state: State) -> None:
        super().__init__(exception_handlers=ERROR_HANDLERS, lifespan=lambda _: running(state))
        self.state = state
        add_middleware(self)
