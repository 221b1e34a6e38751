"""A service process that exports its spans to a collector, as the standard variables say."""

import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.api.deployment.serve_command import command, serving
from tests.conftest import a_spec
from tests.timeouts import wait_until

TRACE = f"{7:032x}"


class Collector(HTTPServer):
    """Takes spans by OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: dict[str, tuple[str, str]] = {}
        super().__init__(("127.0.0.1", 0), _Handler)

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = next(one.value.string_value for one in resource.resource.attributes if one.key == "service.name")
            for scope in resource.scope_spans:
                self.spans |= {span.name: (service, span.trace_id.hex()) for span in scope.spans}


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.take(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.mark.slow
def test_spans_reach_a_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra tracing")
    collector = Collector()
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    monkeypatch.setenv("PACELINE_TRACING", "1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with serving(tmp_path / "data", tmp_path / "log", tokens=False) as client:
        traced = {"traceparent": f"00-{TRACE}-{8:016x}-01"}
        client.post("/v1/experiments", json=a_spec(name="a"), headers=traced).raise_for_status()
        client.post("/v1/experiments/a/ask").raise_for_status()
        wait_until(lambda: {"POST /v1/experiments", "assign", "propose"} <= collector.spans.keys())
    collector.shutdown()
    collector.server_close()
    assert collector.spans["POST /v1/experiments"] == ("paceline-service", TRACE)
    assert collector.spans["assign"][1] != TRACE


@pytest.mark.slow
def test_a_service_without_the_extra_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_TRACING", "1")
    monkeypatch.setenv("PACELINE_DATA_DIR", str(tmp_path))
    blocked = "import sys; sys.modules['opentelemetry.exporter'] = None; from service.cli.main import main; main()"
    ended = subprocess.run([command()[0], "-c", blocked, "serve"], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "pip install 'paceline[tracing]'" in ended.stderr
