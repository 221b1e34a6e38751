"""What an agent left on a cluster, by Ray's own state: `python ray_inventory.py RAY_ADDRESS AGENT`, one item a line.

In a process of its own, because a process can join Ray only once at a time.
"""

import os
import sys
import time
from collections.abc import Iterator

PATIENCE_SECONDS = 120.0


def left_over(agent: str) -> Iterator[str]:
    from ray._private import state  # noqa: PLC0415 - heavy
    from ray.util import list_named_actors  # noqa: PLC0415
    from ray.util.placement_group import placement_group_table  # noqa: PLC0415

    yield from (str(name) for name in list_named_actors() if str(name).startswith(f"slot.{agent}."))
    groups = [entry for entry in placement_group_table().values() if entry["state"] == "CREATED"]
    held = sum(amounts.get("CPU", 0) for entry in groups for amounts in entry["bundles"].values())
    total = sum(amounts.get("CPU", 0) for amounts in state.total_resources_per_node().values())
    free = sum(amounts.get("CPU", 0) for amounts in state.available_resources_per_node().values())
    if free != total - held:
        yield f"{total - held - free:g}-CPU-held-by-nothing"


def main(address: str, agent: str) -> None:
    import ray  # noqa: PLC0415 - heavy

    ray.init(address=address, namespace="paceline", log_to_driver=False)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (left := list(left_over(agent))) and time.monotonic() < deadline:
        time.sleep(0.2)
    sys.stdout.write("\n".join(left))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:3])
