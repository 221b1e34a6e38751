"""What a user does with a client that is generated from openapi.json. It runs beside that client: `python … URL`."""

import sys

from paceline_client import AuthenticatedClient, Client
from paceline_client.api.experiments import (
    cancel_experiment,
    create_experiment,
    get_best,
    get_experiment,
    list_events,
    list_experiments,
)
from paceline_client.api.running_trials import ask_for_trial, finish_attempt, send_heartbeat, send_reports
from paceline_client.api.trials import enqueue_trials, get_trial, list_reports, list_trials
from paceline_client.models import (
    Assignment,
    EnqueuedTrial,
    ExperimentSpec,
    Finish,
    Heartbeat,
    InvalidRequest,
    Outcome,
    Problem,
    Reports,
    TrialDetail,
    TrialView,
)

NAME = "from-a-generated-client"
SPEC = {
    "name": NAME,
    "space": {"lr": {"type": "float", "low": 0.1, "high": 1.0}},
    "objectives": [{"metric": "loss", "direction": "minimize"}],
    "trainer": {"kind": "external"},
    "limits": {"max_trials": 5, "parallelism": 2},
}


def run_trial(client: Client, url: str, loss: float) -> str:
    asked = ask_for_trial.sync(NAME, client=client)
    assert isinstance(asked, Assignment), asked
    holder = AuthenticatedClient(base_url=url, token=asked.lease.token)
    assert send_heartbeat.sync(asked.trial, client=holder, body=Heartbeat(wait_seconds=0)).decision == "continue"
    reports = Reports.from_dict({"reports": [{"sequence": 0, "step": 1, "metrics": {"loss": loss}}]})
    assert send_reports.sync(asked.trial, client=holder, body=reports).decision == "continue"
    assert finish_attempt.sync(asked.trial, client=holder, body=Finish(outcome=Outcome.COMPLETED)).status == "completed"
    return str(asked.trial)


def main(url: str) -> None:
    client = Client(base_url=url)
    created = create_experiment.sync_detailed(client=client, body=ExperimentSpec.from_dict(SPEC), idempotency_key="one")
    assert (created.status_code, created.headers["location"]) == (201, f"/v1/experiments/{NAME}")
    assert created.parsed.status == "running"
    queued = enqueue_trials.sync(NAME, client=client, body=EnqueuedTrial.from_dict({"params": {"lr": 0.5}}))
    assert isinstance(queued, TrialView), queued
    assert queued.params.additional_properties == {"lr": 0.5}

    trials = [run_trial(client, url, loss) for loss in (0.5, 0.25)]
    best = get_best.sync(NAME, client=client)
    assert isinstance(best, TrialDetail), best
    assert (best.id, best.value, best.values.additional_properties) == (trials[1], 0.25, {"loss": 0.25})
    assert get_trial.sync(trials[0], client=client).attempts[0].outcome == "completed"
    assert list_reports.sync(trials[0], client=client).items[0].metrics.additional_properties == {"loss": 0.5}

    first = list_trials.sync(NAME, client=client, limit=1)
    rest = list_trials.sync(NAME, client=client, limit=1, cursor=first.next_cursor)
    assert [one.number for one in (*first.items, *rest.items)] == [0, 1]
    kinds = [one.kind for one in list_events.sync(NAME, client=client, follow=False).items]
    assert kinds.count("trial.completed") == 2

    assert cancel_experiment.sync(NAME, client=client).status == "stopped"
    assert [one.name for one in list_experiments.sync(client=client).items] == [NAME]
    missing = get_experiment.sync("nothing", client=client)
    assert isinstance(missing, Problem), missing
    assert missing.type_ == "urn:paceline:error:not-found"
    mistaken = list_trials.sync(NAME, client=client, limit=0)
    assert isinstance(mistaken, InvalidRequest), mistaken
    assert mistaken.errors[0].path == "limit"


if __name__ == "__main__":
    main(sys.argv[1])
