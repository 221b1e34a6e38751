"""Traces of OpenTelemetry: from the call that submits an experiment to the reports of its trials."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service.settings import Settings
from tests.conftest import Api, running
from tests.spans import recorded_spans
from tests.timeouts import wait_until

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    with recorded_spans() as exporter:
        yield exporter


@pytest.fixture
def traced(settings: Settings, spans: InMemorySpanExporter) -> Iterator[Api]:
    with running(replace(settings, lease_seconds=3600, tracing=True)) as api:
        yield api


def named(spans: InMemorySpanExporter, name: str, count: int = 1) -> Sequence[ReadableSpan]:
    """The spans of this name, once there are so many: a call's span ends after its answer."""
    return (
        wait_until(
            lambda: (
                found
                if len(found := [span for span in spans.get_finished_spans() if span.name == name]) == count
                else None
            )
        )
        or ()
    )


def trace_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context
    return context.trace_id


def test_an_attempt_has_a_trace_with_its_calls_and_links_to_the_submission(
    traced: Api, spans: InMemorySpanExporter
) -> None:
    experiment = traced.create()
    held = traced.ask(experiment["name"])
    assert held
    traceparent = held.assignment["traceparent"]
    held.headers["traceparent"] = traceparent
    held.report(accuracy=0.5)
    finished = held.finish(next=True)
    [submitted] = named(spans, "POST /v1/experiments")
    [asked] = named(spans, "POST /v1/experiments/{experiment}/ask")
    first, second = named(spans, "assign", 2)
    [reported] = named(spans, "POST /v1/trials/{trial}/reports")
    assert traceparent.split("-")[1] == f"{trace_of(first):032x}"
    assert {link.context.trace_id for link in first.links} == {trace_of(submitted), trace_of(asked)}
    assert trace_of(reported) == trace_of(first)
    assert reported.attributes
    ids = {"experiment": experiment["id"], "trial": held.trial, "attempt": "1"}
    assert {name: reported.attributes[f"paceline.{name}"] for name in ids} == ids
    # The slot's next attempt is in the answer to a call of the one before, and has a trace of its own.
    assert trace_of(second) not in {trace_of(first), trace_of(submitted)}
    assert finished["next"]["traceparent"].split("-")[1] == f"{trace_of(second):032x}"
    assert held.headers["Authorization"].split()[1] not in "".join(
        span.to_json() for span in spans.get_finished_spans()
    )


def test_a_repeated_claim_gets_the_same_trace(traced: Api) -> None:
    name = traced.create()["name"]
    first, again = (traced.ask(name, key="one") for _ in range(2))
    assert first
    assert again
    assert first.assignment == again.assignment
    assert first.assignment["traceparent"]


def test_probes_have_no_spans(traced: Api, spans: InMemorySpanExporter) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/v1/agents"):
        traced.http.get(path)
    named(spans, "GET /v1/agents")
    assert len(spans.get_finished_spans()) == 1


def test_without_tracing_there_is_no_trace(service: Api) -> None:
    held = service.ask(service.create()["name"])
    assert held
    assert held.assignment["traceparent"] is None
