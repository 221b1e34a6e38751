"""The spans of an attempt in a slot, and the trace that its calls to the service belong to."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.spans import recorded_spans
from tests.trainer.slot.attempt.played_attempt import Played, play, played
from trainer.process_log.context import log_context
from trainer.traces import tracing
from trainer.worker.messages import WorkerEnded

pytestmark = pytest.mark.ray  # Ray's filters of warnings: the slot's modules import Ray

TRACE, ASSIGNED = f"{7:032x}", f"{8:016x}"
TRACEPARENT = f"00-{TRACE}-{ASSIGNED}-01"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    with recorded_spans() as exporter:
        yield exporter


async def trained(one: Played) -> None:
    one.attempt.function_began()
    assert await one.report(0) == "continue"
    await one.attempt.worker_ended(0, WorkerEnded())
    outcome = await one.conclude()
    assert outcome
    await one.finish(outcome)


def ids(span: ReadableSpan) -> tuple[str, str | None]:
    context = span.get_span_context()
    assert context
    return f"{context.trace_id:032x}", span.parent and f"{span.parent.span_id:016x}"


def test_an_attempt_continues_the_trace_of_its_assignment(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    async def run() -> None:
        with log_context.bound(traceparent=TRACEPARENT), tracing.span("attempt"):
            async with played(tmp_path) as one:
                await trained(one)
                assert {traceparent and traceparent.split("-")[1] for traceparent in one.service.traceparents} == {
                    TRACE
                }
                sent = {traceparent.split("-")[2] for traceparent in one.service.traceparents if traceparent}
        [attempt] = (span for span in spans.get_finished_spans() if span.name == "attempt")
        assert ids(attempt) == (TRACE, ASSIGNED)
        context = attempt.get_span_context()
        assert context
        assert sent == {f"{context.span_id:016x}"}
        for name in ("start workers", "train"):
            span = next(span for span in spans.get_finished_spans() if span.name == name)
            assert ids(span) == (TRACE, f"{context.span_id:016x}")
            assert attempt.start_time
            assert span.end_time
            assert span.end_time >= attempt.start_time

    play(run)


def test_a_slot_without_opentelemetry_passes_the_trace_on(tmp_path: Path) -> None:
    async def run() -> None:
        with log_context.bound(traceparent=TRACEPARENT), tracing.span("attempt"):
            async with played(tmp_path) as one:
                await trained(one)
                assert {*one.service.traceparents} == {TRACEPARENT}

    play(run)


def test_without_a_trace_no_call_names_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            await trained(one)
            assert {*one.service.traceparents} == {None}

    play(run)
