"""The slots that idle agents keep ready for their next experiment: by name, with their processes.

`python -m tests.chaos.system.spare_slots RAY_ADDRESS` joins the cluster, asks every slot, and prints JSON.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

QUERY_SECONDS = 60.0


@dataclass(frozen=True)
class SpareSlot:
    """A slot that has never been given anything, by the name under which its agent started it."""

    name: str
    pid: int

    @property
    def agent(self) -> str:
        """The name of a slot is `slot.AGENT.ID`."""
        return self.name.removeprefix("slot.").rpartition(".")[0]


def spare_slots(ray_port: int, env: Mapping[str, str]) -> list[SpareSlot]:
    """One of each agent; further ones of an agent are not spare, but forgotten. Empty while the cluster is away."""
    command = [sys.executable, "-m", "tests.chaos.system.spare_slots", f"127.0.0.1:{ray_port}"]
    try:
        answer = subprocess.run(
            command, env=dict(env), capture_output=True, text=True, check=True, timeout=QUERY_SECONDS
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return []
    found = [SpareSlot(**one) for one in json.loads(answer.stdout.splitlines()[-1])]
    return list({one.agent: one for one in found}.values())


def _asked(address: str) -> list[dict[str, str | int]]:
    import ray  # noqa: PLC0415 - the chaos process itself does not join the cluster

    from trainer.agent.cluster import connect, find_slots  # noqa: PLC0415

    connect(address, "paceline", QUERY_SECONDS / 2)
    found: list[dict[str, str | int]] = []
    for name, actor in find_slots("slot.").items():
        status = ray.get(actor.status.remote(), timeout=QUERY_SECONDS / 4)
        if status["given_count"] == 0 and status["idle_seconds"] is not None and not status["closing"]:
            found.append({"name": name, "pid": status["pid"]})
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_asked(sys.argv[1])))
