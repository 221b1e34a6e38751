"""Spans for OpenTelemetry, where it is installed and wanted. Without it, nothing here costs or imports anything.

Each attempt has a trace, which the service begins and the slot continues: the `traceparent` (W3C) is in the assignment
and in the header of the slot's calls. It is bound in the log's context, so threads take it over with the other ids.
"""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainer.process_log.context import LOGGER, log_context

TRACEPARENT = "traceparent"

ON, OFF = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")
"""The values of a setting that is a switch."""

EXTRA = "PACELINE_TRACING is set, but {missing} is not installed: pip install 'paceline[tracing]'"


class TracingNotInstalled(Exception):
    """The message says what is missing."""


class Tracing:
    """Off until `set_up` or `use`. Attributes get the prefix `paceline.`."""

    def __init__(self) -> None:
        self._tracer: Any = None
        self.provider: Any = None

    def __reduce__(self) -> tuple[Callable[[], "Tracing"], tuple[()]]:
        """Code that arrives by value uses the tracing of its new process."""
        return _tracing_of_process, ()

    @property
    def is_on(self) -> bool:
        return self._tracer is not None

    def set_up(self, role: str) -> None:
        """Export spans as the standard variables OTEL_* say. Raises TracingNotInstalled."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - optional
            from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
            from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        except ImportError as error:
            raise TracingNotInstalled(EXTRA.format(missing=error.name)) from error
        named = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": f"paceline-{role}"}
        provider = TracerProvider(resource=Resource.create(named))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self.use(provider)

    def set_up_on_node(self, role: str, variables: Mapping[str, str]) -> None:
        """As `set_up`, with these variables OTEL_*. A node without the libraries goes on without spans of its own."""
        os.environ.update(variables)
        try:
            self.set_up(role)
        except TracingNotInstalled as error:
            logging.getLogger(LOGGER).warning("no spans from this %s: %s", role, error)

    def use(self, provider: Any) -> None:
        """The provider of the process's spans; None: no tracing."""
        self.provider = provider
        self._tracer = None if provider is None else provider.get_tracer(LOGGER)

    def flush(self, seconds: float) -> None:
        """Export what has ended, for a process that is about to end without cleanup."""
        if self.provider is not None:
            self.provider.force_flush(int(1000 * seconds))

    def begin_trace(self, name: str, *links: str | None, **attributes: Any) -> str | None:
        """The traceparent of a new trace, with links to the present span and to others; None without tracing.

        Also an attempt that is given in the answer to a call of the one before has a trace of its own.
        """
        if self._tracer is None:
            return None
        from opentelemetry.context import Context  # noqa: PLC0415 - optional
        from opentelemetry.trace import Link  # noqa: PLC0415

        contexts = [_span_context(link) for link in dict.fromkeys((self.traceparent, *links)) if link]
        span = self._tracer.start_span(
            name, context=Context(), links=[Link(one) for one in contexts], attributes=_prefixed(attributes)
        )
        span.end()
        return _traceparent_of(span)

    @contextlib.contextmanager
    def span(self, name: str, **attributes: Any) -> Iterator[None]:
        """A span within the present one, which is the present one meanwhile."""
        if self._tracer is None:
            yield
            return
        from opentelemetry import trace  # noqa: PLC0415 - optional

        span = self._tracer.start_span(name, context=self._parent(), attributes=_prefixed(attributes))
        with trace.use_span(span, end_on_exit=True), log_context.bound(**{TRACEPARENT: _traceparent_of(span)}):
            yield

    def add_span(self, name: str, began: float, ended: float, **attributes: Any) -> None:
        """A span of the past, within the present one. Times as of `time.monotonic()`."""
        if self._tracer is None:
            return
        since = time.time() - time.monotonic()
        span = self._tracer.start_span(
            name, context=self._parent(), start_time=int((since + began) * 1e9), attributes=_prefixed(attributes)
        )
        span.end(int((since + ended) * 1e9))

    def annotate(self, attributes: Mapping[str, Any]) -> None:
        """Add attributes to the present span."""
        if self._tracer is not None:
            from opentelemetry import trace  # noqa: PLC0415 - optional

            trace.get_current_span().set_attributes(_prefixed(attributes))

    def rename(self, name: str) -> None:
        """Name the present span."""
        if self._tracer is not None:
            from opentelemetry import trace  # noqa: PLC0415 - optional

            trace.get_current_span().update_name(name)

    @property
    def traceparent(self) -> str | None:
        """The header for the present span, which may be another process's."""
        if self._tracer is not None:
            from opentelemetry import trace  # noqa: PLC0415 - optional

            if (span := trace.get_current_span()).get_span_context().is_valid:
                return _traceparent_of(span)
        return log_context.current().get(TRACEPARENT)

    def _parent(self) -> Any:
        from opentelemetry import trace  # noqa: PLC0415 - optional

        if self.traceparent is None:
            return None
        return trace.set_span_in_context(trace.NonRecordingSpan(_span_context(self.traceparent)))


def wanted(env: Mapping[str, str] = os.environ) -> bool:
    return env.get("PACELINE_TRACING", "").strip().lower() in ON


def exporter_settings(env: Mapping[str, str] = os.environ) -> dict[str, str] | None:
    """What a slot needs to export as its agent would; None without tracing."""
    return {name: value for name, value in env.items() if name.startswith("OTEL_")} if wanted(env) else None


def _traceparent_of(span: Any) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _span_context(traceparent: str) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags  # noqa: PLC0415 - optional

    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


def _prefixed(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"paceline.{name}": value for name, value in attributes.items() if value is not None and name != TRACEPARENT
    }


def _tracing_of_process() -> Tracing:
    """Kept with the logger, as the log's context is."""
    found: Tracing = vars(logging.getLogger(LOGGER)).setdefault("tracing", Tracing())
    return found


tracing = _tracing_of_process()
