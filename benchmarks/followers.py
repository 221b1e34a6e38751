"""A report's latency, and the service's memory, beside followers of event streams, idle ones and ones that do not read.

One trial reports all the time. The followers follow another experiment ("idle"), or the one that reports ("busy"); of
the busy ones a share reads nothing at all. They have a process of their own, with one socket each. The goal: 1,000 idle
followers must not raise the median of a report by more than 20 %, and the memory must come back when they have left.

    python -m benchmarks.followers [--followers 1000] [--seconds 10] [--rounds 3] [--deaf 0.5]
"""

import argparse
import asyncio
import multiprocessing
import resource
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.harness.load import Connection, running_trials
from benchmarks.recovery import HOST, Paceline, until_served
from benchmarks.reports import spec
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import upgrade

PAUSE_SECONDS = 0.02
DEAF_BYTES = 4096
NOTE_CHARACTERS = 300
GOAL = 1.2


async def _follow(port: int, path: str, count: int, deaf: int, ready: Any, leave: Any) -> None:
    """Hold `count` streams until `leave` is set; the first `deaf` of them read no more than fits into their buffers."""
    request = f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
    streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    for _ in range(count):
        peer = socket.socket()
        if len(streams) < deaf:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, DEAF_BYTES)
        peer.connect((HOST, port))
        reader, writer = await asyncio.open_connection(sock=peer, limit=DEAF_BYTES)
        writer.write(request)
        streams.append((reader, writer))
    for reader, _ in streams:
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(head.decode())
    reading = [asyncio.ensure_future(_drain(reader)) for reader, _ in streams[deaf:]]
    ready.set()
    await asyncio.to_thread(leave.wait)
    for _, writer in streams:
        writer.transport.abort()
    await asyncio.gather(*reading, return_exceptions=True)


async def _drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(2**16):
        pass


def _followers_process(*arguments: Any) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_follow(*arguments))


@contextmanager
def followers(port: int, experiment: str, count: int, deaf: int = 0) -> Iterator[None]:
    """They have seen all events of the past, as followers that reconnect."""
    path = f"/v1/experiments/{experiment}/events?after={_newest_event(port, experiment)}"
    spawn = multiprocessing.get_context("spawn")
    ready, leave = spawn.Event(), spawn.Event()
    process = spawn.Process(target=_followers_process, args=(port, path, count, deaf, ready, leave), daemon=True)
    process.start()
    try:
        while not ready.wait(1):
            if not process.is_alive():
                raise RuntimeError("the followers' process has ended")
        yield
    finally:
        leave.set()
        process.join()


def _newest_event(port: int, experiment: str) -> int:
    seen = 0
    while True:
        query = {"follow": False, "limit": 1000, "after": seen}
        events = httpx.get(f"http://{HOST}:{port}/v1/experiments/{experiment}/events", params=query).json()["items"]
        if not events:
            return seen
        seen = events[-1]["seq"]


def memory_mb() -> float:
    return _process().memory_info().rss / 2**20


def cpu_seconds() -> float:
    return sum(_process().cpu_times()[:2])


def _process() -> psutil.Process:
    """The service's."""
    [service] = [child for child in psutil.Process().children() if "service.cli" in child.cmdline()]
    return service


class Reporting:
    """Trials that report one after the other; the sequence continues from measurement to measurement."""

    def __init__(self, url: str, trials: list[dict[str, Any]]) -> None:
        self._url = url
        self._trials = trials
        self._sequence = 0

    async def latencies(self, seconds: float) -> list[float]:
        connection = Connection(self._url)
        await connection.open()
        found, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end:
            trial = self._trials[self._sequence % len(self._trials)]
            report = {"sequence": self._sequence, "metrics": {"accuracy": 0.5, "note": "x" * 200}}
            began = time.perf_counter()
            await connection.post(
                f"/v1/trials/{trial['trial']}/reports", trial["lease"]["token"], {"reports": [report]}
            )
            found.append(time.perf_counter() - began)
            self._sequence += 1
            await asyncio.sleep(PAUSE_SECONDS)
        connection.close()
        return found


def measure(service: Paceline, options: argparse.Namespace) -> None:
    url = f"http://{HOST}:{service.port}"
    quiet, busy = spec(1), spec(1)
    with httpx.Client(base_url=url) as client:
        client.post("/v1/experiments", json=quiet).raise_for_status()
    reporting = Reporting(url, running_trials(url, busy))
    asyncio.run(reporting.latencies(2))  # warm up
    deaf = int(options.followers * options.deaf)
    layouts = {
        "idle": (quiet["name"], 0),
        "busy": (busy["name"], 0),
        f"busy, {deaf} of them do not read": (busy["name"], deaf),
    }
    for name, (experiment, silent) in layouts.items():
        _compare(service, reporting, f"{options.followers} followers, {name}", (experiment, silent), options)


def _compare(
    service: Paceline, reporting: Reporting, name: str, layout: tuple[str, int], options: argparse.Namespace
) -> None:
    """Measure without and with followers in turn, since the machine's speed changes from minute to minute."""
    alone, beside, memory = Measured(), Measured(), []
    for _ in range(options.rounds):
        alone.measure(reporting, options.seconds)
        before = memory_mb()
        with followers(service.port, layout[0], options.followers, layout[1]):
            beside.measure(reporting, options.seconds)
            during = memory_mb()
        time.sleep(2)
        memory.append((before, during, memory_mb()))
    ratio = statistics.median(beside.latencies) / statistics.median(alone.latencies)
    print(f"\n{name}", flush=True)
    print(f"  report alone   {alone}")
    print(f"  report beside  {beside}   {ratio:.2f} x{'' if ratio <= GOAL else f', more than {GOAL} x'}")
    print("  memory         " + "; ".join(f"{a:.0f} -> {b:.0f} -> {c:.0f} MB" for a, b, c in memory), flush=True)


@dataclass
class Measured:
    """Latencies of reports, and the processor time of the service meanwhile."""

    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    cpu: float = 0.0

    def measure(self, reporting: Reporting, seconds: float) -> None:
        cpu = cpu_seconds()
        self.latencies += asyncio.run(reporting.latencies(seconds))
        self.cpu += cpu_seconds() - cpu
        self.seconds += seconds

    def __str__(self) -> str:
        median, p95 = statistics.median(self.latencies) * 1e3, statistics.quantiles(self.latencies, n=20)[-1] * 1e3
        share = self.cpu / self.seconds
        return f"median {median:6.1f} ms, p95 {p95:6.1f} ms, n={len(self.latencies)}, {share:4.0%} of a processor"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--followers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--deaf", type=float, default=0.5, help="the share of busy followers that do not read")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="paceline-followers-") as directory:
        home = Path(directory)
        url = f"sqlite:///{home / 'paceline.db'}"
        database = Database(url)
        upgrade(database)
        database.close()
        service = Paceline(url, home)
        service.process.start()
        try:
            until_served(service.ready, time.perf_counter())
            measure(service, options)
        finally:
            service.process.kill()


if __name__ == "__main__":
    main()
