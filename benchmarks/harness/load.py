"""A load of reports on a service, from one process with little overhead: plain HTTP over persistent connections."""

import asyncio
import json
import statistics
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx


@dataclass
class Load:
    """The result of a load. `latencies` are seconds from a report's first byte to its answer's last."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    stopped: int = 0

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.seconds if self.seconds else 0.0

    def quantile(self, share: float) -> float:
        return statistics.quantiles(self.latencies, n=1000)[round(share * 1000) - 1]


class Connection:
    """A persistent connection that posts JSON. Raises RuntimeError for an answer that is not 200."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = str(parts.hostname), int(parts.port or 80)

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)

    async def post(self, path: str, token: str, body: dict[str, Any]) -> dict[str, Any]:
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self._writer.write(head.encode() + content)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        found: dict[str, Any] = json.loads(await self._reader.readexactly(length))
        if b" 200 " not in answer.split(b"\r\n", 1)[0]:
            raise RuntimeError(str(found))
        return found

    def close(self) -> None:
        self._writer.close()


def running_trials(url: str, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Create an experiment and return as many assignments as its parallelism allows."""
    with httpx.Client(base_url=url, timeout=60) as client:
        client.post("/v1/experiments", json=spec).raise_for_status()
        path, count = f"/v1/experiments/{spec['name']}/ask", spec["limits"]["parallelism"]
        return [client.post(path).raise_for_status().json() for _ in range(count)]


async def report_continuously(
    url: str, held: list[dict[str, Any]], seconds: float, *, pace: float | None = None
) -> Load:
    """Let each trial report, wait for the answer and report again; `pace` limits the reports a second of all trials."""
    load, end = Load(), time.perf_counter() + seconds
    began = time.perf_counter()
    pause = len(held) / pace if pace else 0.0
    await asyncio.gather(*(_train(url, one, load, end, pause, number / len(held)) for number, one in enumerate(held)))
    load.seconds = time.perf_counter() - began
    return load


async def _train(url: str, held: dict[str, Any], load: Load, end: float, pause: float, phase: float) -> None:
    connection = Connection(url)
    await connection.open()
    path, token = f"/v1/trials/{held['trial']}/reports", held["lease"]["token"]
    sequence, due = 0, time.perf_counter() + phase * pause
    while time.perf_counter() < end:
        if pause:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            due += pause
        report = {"sequence": sequence, "metrics": {"accuracy": 0.5 + sequence * 1e-6, "loss": 0.5}}
        began = time.perf_counter()
        answer = await connection.post(path, token, {"reports": [report]})
        load.latencies.append(time.perf_counter() - began)
        load.stopped += answer["decision"] != "continue"
        sequence += 1
    connection.close()
