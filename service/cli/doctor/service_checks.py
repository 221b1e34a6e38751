"""Checks of a running service, by its HTTP API: as its clients, its agents and their slots see it."""

import time
from collections.abc import Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version as installed_version
from typing import Any

import httpx

from search.numbers_in_messages import counted
from service.cli.client.answers import Refused, Unreachable
from service.cli.client.client import Client
from service.cli.client.commands_in_messages import with_commands
from service.cli.doctor.check import Check, failed, ok, warning
from service.cli.doctor.mlflow_check import why_no_answer

MAX_SKEW_SECONDS = 5.0
SKEW_ADVICE = (
    "synchronize the clocks (NTP). Leases do not depend on it, because they use the database's clock, but times in "
    "logs and in MLflow do"
)
STORAGE_ADVICE = (
    "mount a directory there, and give its user write access; for a bucket, see the agent's credentials and endpoint"
)
WITHHELD_ADVICE = "free space in the node's temporary directory, or take the node out of the cluster"

Json = dict[str, Any]


def check_service(client: Client) -> Iterator[Check]:
    """The checks of one service; only the first, if it does not answer."""
    try:
        skew = clock_skew(client)
    except Unreachable as error:
        yield failed("service", str(error), "see the service's log, and the address in PACELINE_URL")
        return
    except Refused as refused:
        yield _refused(refused)
        return
    yield ok("service", f"{client.url} answers")
    if skew is not None:
        yield describe_skew("clock", skew, "the service's")
    try:
        readiness = client.readiness()
        yield _version(readiness.get("version"))
        yield from _readiness(readiness)
        yield from _mlflow_page(readiness)
        yield from _agents(list(client.agents()))
        yield from _waiting(client)
    except Refused as refused:
        yield _refused(refused)
    except Unreachable as error:
        yield failed("service", str(error), "see the service's log: it answered before")


def clock_skew(client: Client) -> float | None:
    """How many seconds the service's clock is ahead of this machine's, to about a second. None if it does not say."""
    before = time.time()
    date = client.date()
    middle = (before + time.time()) / 2
    if date is None:
        return None
    # The header has no fractions: half a second is what they are on average.
    return parsedate_to_datetime(date).timestamp() + 0.5 - middle


def describe_skew(subject: str, seconds: float, whose: str) -> Check:
    if abs(seconds) <= MAX_SKEW_SECONDS:
        return ok(subject, f"{whose} clock agrees with this machine's within {MAX_SKEW_SECONDS:g} s")
    direction = "ahead of" if seconds > 0 else "behind"
    return warning(subject, f"{whose} clock is {abs(seconds):.0f} s {direction} this machine's", SKEW_ADVICE)


def _version(found: str | None) -> Check:
    """None: an older service, which does not say."""
    own = installed_version("paceline")
    if found == own:
        return ok("version", found)
    return warning(
        "version",
        f"the service has {found or 'an older version'}, this command line {own}",
        "install the same version on both sides",
    )


def _readiness(readiness: Json) -> Iterator[Check]:
    database = readiness["database"]
    if database.startswith("unreachable"):
        yield failed("database", database, "see PACELINE_DATABASE_URL of the service, and the database server's log")
    elif database != "ok":
        yield failed("database", database, "see docs/operations/deployment.md#databases-and-upgrades")
    else:
        yield ok("database", "answers, with the newest schema")
    for name, health in readiness["loops"].items():
        if not health["ok"]:
            found = f"{name}: {health['error'] or 'its thread has ended'}"
            yield (failed if health["needed"] else warning)("background loop", found, "see the service's log")
    if database == "ok":
        yield _storage(readiness)


def _storage(readiness: Json) -> Check:
    storage = readiness["storage"]
    if storage.startswith("ok"):
        return ok("storage", "all connected agents can write to it")
    if storage.startswith("unknown"):
        return warning("storage", storage, "connect an agent; it writes a small file to the storage to find out")
    advice = "see the agents below, and PACELINE_STORAGE of the service"
    return (warning if readiness["ready"] else failed)("storage", storage.partition("; ")[0], advice)


def _mlflow_page(readiness: Json) -> Iterator[Check]:
    url = readiness["mlflow_url"]
    if url is None:
        yield warning("MLflow", "the service mirrors to no MLflow server", "set PACELINE_MLFLOW_URI of the service")
        return
    reason = why_no_answer(url)
    if reason is None:
        yield ok("MLflow", f"{url} answers{_lag(readiness)}")
    else:
        advice = "start it, or set PACELINE_MLFLOW_UI of the service to the address that people open"
        yield warning("MLflow", f"{url} does not answer here ({reason}){_lag(readiness)}", advice)


def _lag(readiness: Json) -> str:
    """The service does not know it while its database is away, or when it mirrors nothing."""
    lag = readiness["mlflow_lag"]
    return "" if lag is None else f"; {counted(lag, 'event')} not mirrored yet"


def _agents(agents: list[Json]) -> Iterator[Check]:
    connected = [one for one in agents if one["connected"]]
    if not connected:
        advice = "run `paceline agent` beside a Ray cluster; trials of `kind: external` need none"
        yield warning("agents", "none is connected", advice)
    for agent in agents:
        yield _agent(agent)


def _agent(agent: Json) -> Check:
    subject = f"agent {agent['name']}"
    if not agent["connected"]:
        seen = datetime.fromisoformat(agent["last_seen_at"]).strftime("%Y-%m-%d %H:%M:%S")
        return warning(subject, f"last seen {seen} UTC", "start it again; if it is not needed any more, ignore this")
    if agent["storage_error"]:
        return failed(subject, agent["storage_error"], STORAGE_ADVICE)
    withheld = next((node["withheld"] for node in agent["nodes"] if node.get("withheld")), None)
    if withheld is not None:
        return warning(subject, f"gives a node no new trial for some minutes: {withheld}", WITHHELD_ADVICE)
    return ok(subject, f"{_resources(agent['nodes'])}; runs {counted(len(agent['running']), 'trial')}")


def _resources(nodes: list[Json]) -> str:
    totals = {name: sum(node["total"].get(name, 0) for node in nodes) for name in ("CPU", "GPU")}
    has = " and ".join(counted(total, name) for name, total in totals.items())
    return f"{counted(len(nodes), 'node')} with {has}"


def _waiting(client: Client) -> Iterator[Check]:
    for experiment in client.experiments(status="running"):
        if experiment.get("waiting_for"):
            advice = (
                "install the library where the service runs, or start the search anew with another sampler"
                if experiment["waiting_for"].startswith("a library")
                else "provide what it names, or submit it anew with less in `trainer.scaling`"
            )
            yield warning(
                f"experiment {experiment['name']}", f"waits for {with_commands(experiment['waiting_for'])}", advice
            )


def _refused(refused: Refused) -> Check:
    if refused.type == "foreign-host":  # whose message says what to do
        return failed("service", str(refused), "or use an address in PACELINE_URL that the service knows")
    if refused.status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        advice = "set PACELINE_TOKEN to a token with the role `read`: `paceline token create NAME --role read`"
        return failed("access", str(refused), advice)
    if refused.status >= httpx.codes.INTERNAL_SERVER_ERROR:
        return failed("service", str(refused), "see the service's log, and repeat this later")
    return failed("service", str(refused), "see whether PACELINE_URL is the address of a Paceline service")
