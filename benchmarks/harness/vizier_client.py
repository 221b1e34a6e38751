"""The load of `benchmarks.reports` on OSS Vizier's service: measurements, each with a request for a stopping decision.

It runs in an interpreter with Vizier, which needs an environment of its own: see `reports --vizier`.

    python benchmarks/harness/vizier_client.py serve DATABASE_URL
    python benchmarks/harness/vizier_client.py load ENDPOINT STUDY THREADS SECONDS
"""

import itertools
import sys
import threading
import time

from vizier.service import clients, servers  # type: ignore[import-not-found]
from vizier.service import pyvizier as vz


def serve(database_url: str) -> None:
    """Print the address, and serve until killed."""
    server = servers.DefaultVizierServer(host="localhost", database_url=database_url)
    print(server.endpoint, flush=True)
    threading.Event().wait()


def load(endpoint: str, name: str, threads: int, seconds: float) -> None:
    """Print the measurements a second of all trials, each with Vizier's stopping decision."""
    clients.environment_variables.server_endpoint = endpoint
    config = vz.StudyConfig(algorithm="RANDOM_SEARCH")
    config.search_space.root.add_float_param("lr", 1e-4, 1.0, scale_type=vz.ScaleType.LOG)
    config.metric_information.append(vz.MetricInformation(name="accuracy", goal=vz.ObjectiveMetricGoal.MAXIMIZE))
    config.automated_stopping_config = vz.AutomatedStoppingConfig.default_stopping_spec()
    study = clients.Study.from_study_config(config, owner="benchmark", study_id=name)
    trials = list(study.suggest(count=threads, client_id=f"{name}-{time.monotonic_ns()}"))
    end, counts = time.monotonic() + seconds, list[int]()

    def train(trial: clients.Trial) -> None:
        for step in itertools.count(1):
            if time.monotonic() > end:
                counts.append(step - 1)
                return
            trial.add_measurement(vz.Measurement(metrics={"accuracy": 0.5 + step * 1e-6}, steps=step))
            trial.check_early_stopping()

    running = [threading.Thread(target=train, args=(trial,)) for trial in trials]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    print(sum(counts) / seconds)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        load(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
