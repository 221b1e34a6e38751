"""A service that speaks `trainer.wire` and nothing more: it hands out queued assignments and records every call."""

import hashlib
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import TypeAdapter

from service.domain.group_fit import fits_now
from trainer.client.answers import PROBLEM_TYPES
from trainer.wire import (
    Answer,
    Assignment,
    Claim,
    Decision,
    Deletion,
    DeletionResults,
    Finish,
    Heartbeat,
    HeldAttempt,
    HeldAttempts,
    Instance,
    Lease,
    LogChunk,
    PartlyNeededFolder,
    PhaseSeconds,
    Report,
    Reports,
    SystemSample,
    Trainer,
)

Decide = Callable[[str, Report], Answer]

PATIENCE_SECONDS = 240.0
"""How long tests wait for what should happen soon. It only keeps a test from hanging, however slow the machine is."""


def go_on(_trial: str, _report: Report) -> Answer:
    return Answer()


def encoded(status: int, value: Any) -> tuple[int, bytes]:
    return (204, b"") if value is None else (status, TypeAdapter(Any).dump_json(value))


class FakeService:
    """Its attributes record every call, in order. `wait_for` waits for calls."""

    def __init__(self, storage: str) -> None:
        self.storage = storage
        self.decide: Decide = go_on
        self.orders: dict[str, Answer] = {}
        self._is_away = False
        self.keeps_no_logs = False
        self.expects_gaps = False
        self.unknown_fields: dict[str, str] = {}
        """one for each verb, as in a service of an earlier version"""
        self.log_calls = 0
        self.takes_logs = threading.Event()
        self.takes_logs.set()
        self.failing: tuple[int, bytes] | None = None
        self.parallelism = 1
        self.lost: set[str] = set()
        self.refused: dict[str, str] = {}
        self.queue: list[Assignment] = []
        self.packages: dict[str, tuple[bytes, str]] = {}
        self.request_ids: list[str] = []
        self.traceparents: list[str | None] = []
        self.claims: list[Claim] = []
        self.left: list[Instance] = []
        self.obsolete: list[str] = []
        self.partly_needed: list[PartlyNeededFolder] = []
        self.deletions: dict[int, Deletion] = {}
        self.failed_deletions: dict[int, str] = {}
        self.reports: dict[str, list[Report]] = defaultdict(list)
        self.world_sizes: dict[str, list[int | None]] = defaultdict(list)
        self.logs: dict[str, dict[int, str]] = defaultdict(lambda: defaultdict(str))
        self.log_sizes: dict[tuple[str, int], int] = defaultdict(int)
        self.finishes: dict[str, Finish] = {}
        self.heartbeats: dict[str, int] = defaultdict(int)
        self.phases: dict[str, list[PhaseSeconds | None]] = defaultdict(list)
        self.endings: dict[str, list[bool]] = defaultdict(list)
        """what each heartbeat says"""
        self.samples: dict[str, list[SystemSample]] = defaultdict(list)
        self.times: dict[str, dict[str, float]] = defaultdict(dict)
        self._assigned: dict[str, Assignment] = {}
        self._holders: dict[str, str] = {}
        self._answers: dict[str, Assignment | None] = {}
        self._changed = threading.Condition()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    @contextmanager
    def serving(self) -> Iterator["FakeService"]:
        thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            self.server.server_close()
            thread.join()

    @property
    def away(self) -> bool:
        return self._is_away

    @away.setter
    def away(self, is_away: bool) -> None:
        """Once it is away, no report is counted any more, nor one that has already arrived."""
        with self._changed:
            self._is_away = is_away

    def add_package(self, code: str | bytes, filename: str = "train.py") -> str:
        content = code.encode() if isinstance(code, str) else code
        package_id = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.packages[package_id] = content, filename
        return package_id

    def add_trial(
        self,
        trainer: dict[str, Any],
        config: dict[str, Any] | None = None,
        *,
        experiment: str = "x-1",
        lease_seconds: float = 30,
        **fields: Any,
    ) -> str:
        """Queue a trial; returns its id."""
        with self._changed:
            number = len(self._assigned) + len(self.queue)
            trial = f"t-{number}-{time.monotonic_ns():x}"
            lease = Lease(
                token=f"lease-{trial}",
                expires_at=datetime.now(UTC) + timedelta(seconds=lease_seconds),
                seconds=lease_seconds,
            )
            body = {
                "trial": trial,
                "experiment": experiment,
                "experiment_id": experiment,
                "number": number,
                "attempt": 1,
                "params": config or {},
                "config": config or {},
                "lease": lease,
                "trainer": Trainer.model_validate(trainer),
                "run_name": f"{experiment}-{trial}-1",
                "storage_path": self.storage,
                **fields,
            }
            self.queue.append(Assignment.model_validate(body))
            self._changed.notify_all()
        return trial

    def assign(self, trial: str) -> dict[str, Any]:
        """The assignment of a queued trial, for a slot that has no agent."""
        with self._changed:
            found = self._take(next(a for a in self.queue if a.trial == trial))
        assert found is not None
        return found.model_dump(mode="json")

    def order(self, trial: str, decision: Decision, reason: str | None = None) -> None:
        """The trial's holder gets this order immediately, and again at each further call."""
        with self._changed:
            self.orders[trial] = Answer(decision=decision, reason=reason)
            self._changed.notify_all()

    def lose(self, trial: str) -> None:
        with self._changed:
            self.lost.add(trial)
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS, what: str = "it") -> Any:
        with self._changed:
            found = self._changed.wait_for(condition, seconds)
        assert found, f"{what} did not happen within {seconds} s; logs: {json.dumps(self.logs, default=str)[-3000:]}"
        return found

    def finished(self, trial: str) -> Finish:
        self.wait_for(lambda: trial in self.finishes, what=f"the end of {trial}")
        return self.finishes[trial]

    def log(self, trial: str, rank: int = 0) -> str:
        return self.logs[trial][rank]

    # The calls.

    def attempts(self, agent: str) -> HeldAttempts:
        with self._changed:
            living = [self._assigned[trial] for trial, holder in self._holders.items() if holder == agent]
            living = [one for one in living if one.trial not in {*self.finishes, *self.lost}]
        attempts = [HeldAttempt(trial=one.trial, attempt=one.attempt) for one in living]
        return HeldAttempts(
            attempts=attempts,
            obsolete=self.obsolete,
            partly_needed=self.partly_needed,
            deletions=list(self.deletions.values()),
            storage=self.storage,
        )

    def agent_call(self, agent: str, verb: str, body: bytes) -> Assignment | None:
        if verb == "claim":
            return self.claim(agent, body)
        if verb == "deletions":
            self.take_deletion_results(body)
            return None
        self.leave(body)
        return None

    def take_deletion_results(self, body: bytes) -> None:
        results = DeletionResults.model_validate_json(body)
        with self._changed:
            for id_ in results.deleted:
                self.deletions.pop(id_, None)
            self.failed_deletions |= {failure.id: failure.error for failure in results.failed}
            self._changed.notify_all()

    def leave(self, body: bytes) -> None:
        with self._changed:
            self.left.append(Instance.model_validate_json(body))
            self._changed.notify_all()

    def claim(self, agent: str, body: bytes) -> Assignment | None:
        claim = Claim.model_validate_json(body)
        with self._changed:
            self.claims.append(claim)
            self.lost |= {one.trial for one in claim.lost}
            self._changed.notify_all()
            if claim.request_id not in self._answers:
                self._changed.wait_for(lambda: self._fitting(claim) is not None, claim.wait_seconds)
                taken = self._answers[claim.request_id] = self._take(self._fitting(claim))
                self._holders |= {taken.trial: agent} if taken else {}
            return self._answers[claim.request_id]

    def _fitting(self, claim: Claim) -> Assignment | None:
        if len(set(self._assigned) - set(self.finishes) - self.lost) >= self.parallelism:
            return None
        if claim.storage_error is not None:
            return None
        for assignment in self.queue:
            if fits_now(assignment.trainer.group, claim.nodes):
                return assignment
        return None

    def _take(self, assignment: Assignment | None) -> Assignment | None:
        if assignment is not None:
            self.queue.remove(assignment)
            self._assigned[assignment.trial] = assignment
            self.times[assignment.trial]["assigned"] = time.monotonic()
        return assignment

    def report(self, trial: str, body: bytes) -> Answer | dict[str, Any]:
        message = Reports.model_validate_json(body)
        reports = message.reports
        with self._changed:
            if self.away:
                return {"status": 503, "detail": "away"}
            self.reports[trial] += reports
            self.world_sizes[trial] += [message.world_size] * len(reports)
            self.times[trial].setdefault("first_report", time.monotonic())
            answers = [self.decide(trial, report) for report in reports]
            self._changed.notify_all()
        return next((a for a in answers if a.decision != Decision.CONTINUE), answers[-1])

    def heartbeat(self, trial: str, body: bytes) -> Answer | dict[str, Any]:
        message = Heartbeat.model_validate_json(body)
        seconds = message.wait_seconds
        with self._changed:
            self.heartbeats[trial] += 1
            self.phases[trial].append(message.phases)
            self.endings[trial].append(message.is_ending)
            self.samples[trial] += message.system_metrics
            self._changed.notify_all()
            self._changed.wait_for(lambda: trial in self.orders or self.refusal(trial, "heartbeat"), seconds)
            return self.refusal(trial, "heartbeat") or self.orders.get(trial, Answer())

    def chunk(self, trial: str, body: bytes) -> None:
        chunk = LogChunk.model_validate_json(body)
        with self._changed:
            self.log_calls += 1
            self._changed.notify_all()
        self.takes_logs.wait()
        with self._changed:
            text = self.logs[trial][chunk.rank]
            size = self.log_sizes[trial, chunk.rank]
            is_next = chunk.offset == size or (self.expects_gaps and chunk.offset > size)
            assert is_next or not chunk.text, f"rank {chunk.rank}: offset {chunk.offset} after {size}"
            self.log_sizes[trial, chunk.rank] = chunk.offset + len(chunk.text.encode())
            # As the service notes what is missing.
            note = f"[missing up to {chunk.offset}]" if chunk.offset > size else ""
            self.logs[trial][chunk.rank] = text + note + chunk.text
            self._changed.notify_all()

    def finish(self, trial: str, body: bytes) -> dict[str, Any]:
        finish = Finish.model_validate_json(body)
        with self._changed:
            self.finishes[trial] = finish
            self.samples[trial] += finish.system_metrics
            self.times[trial]["finished"] = time.monotonic()
            experiment = self._assigned[trial].experiment_id
            same = [a for a in self.queue if a.experiment_id == experiment] if finish.next else []
            following = self._take(same[0]) if same else None
            self._holders |= {following.trial: self._holders[trial]} if following and trial in self._holders else {}
            self._changed.notify_all()
        return {"status": finish.outcome, "next": following}

    def refusal(self, trial: str, verb: str, body: bytes = b"") -> dict[str, Any] | None:
        if verb == "logs" and self.keeps_no_logs:
            full = f"{PROBLEM_TYPES}insufficient-storage"
            return {"status": 507, "type": full, "title": "No room", "detail": "the disk is full"}
        if trial in self.lost or (trial in self.finishes and verb != "finish"):
            lost = f"{PROBLEM_TYPES}lease-lost"
            return {"status": 409, "type": lost, "title": "Lease lost", "detail": "it is another's now"}
        if (unknown := self.unknown_fields.get(verb)) and f'"{unknown}"'.encode() in body:
            return {"status": 422, "type": f"{PROBLEM_TYPES}invalid", "title": "Mistakes", "detail": "unknown field"}
        if verb == "reports" and trial in self.refused:
            return {
                "status": 422,
                "type": f"{PROBLEM_TYPES}invalid",
                "title": "Mistakes",
                "detail": self.refused[trial],
            }
        return None

    def package(self, package: str) -> tuple[int, bytes, str]:
        """Status, content and filename."""
        if self.away or package not in self.packages:
            return (503 if self.away else 404), b'{"type": "urn:paceline:error:not-found"}', ""
        return 200, *self.packages[package]

    def got(self, path: str) -> tuple[int, Any]:
        """The answer to a GET of no package."""
        if path == "/healthz":
            return 200, {}
        return (503, {}) if self.away else (200, self.attempts(path.split("/")[3]))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self
        verbs = {"reports": self.report, "heartbeat": self.heartbeat, "logs": self.chunk, "finish": self.finish}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                if not self.path.startswith("/v1/packages/"):
                    self._answer(*service.got(self.path))
                    return
                status, content, filename = service.package(self.path.rpartition("/")[2])
                self.send_response(status)
                self.send_header("Content-Disposition", f'attachment; filename="{filename}"')
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                service.request_ids.append(self.headers["X-Request-ID"])
                service.traceparents.append(self.headers["traceparent"])
                failure = (503, b"{}") if service.away else service.failing
                if failure is not None:
                    self._send(*failure)
                elif self.path.startswith("/v1/agents/"):
                    agent, verb = self.path.split("/")[3:]
                    self._answer(200, service.agent_call(agent, verb, body))
                else:
                    self._trial_call(body)

            def _trial_call(self, body: bytes) -> None:
                _, _, _, trial, verb = self.path.split("/")
                assert self.headers["Authorization"] == f"Bearer lease-{trial}"
                answer = service.refusal(trial, verb, body) or verbs[verb](trial, body)
                self._answer(answer["status"] if isinstance(answer, dict) and "detail" in answer else 200, answer)

            def _answer(self, status: int, value: Any) -> None:
                self._send(*encoded(status, value))

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: Any) -> None:
                pass

        return Handler
