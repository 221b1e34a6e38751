"""How a rule is asked: the same for the service, for a replay and for tests."""

from collections.abc import Iterator

from search.early_stopping.contract import History, Reported, Rule, Verdict


def decide(rule: Rule, report: Reported, history: History) -> Iterator[Verdict]:
    """Judges each milestone that the trial reaches with this report, up to the first that stops it.

    The first value at a milestone stands for ever. A trial that is stopped has not reached the milestones beyond.
    """
    for milestone in rule.milestones(report, history):
        if not history.reach(milestone, report.value, rule.pool_of(report.number)):
            continue
        verdict = rule.judge(report, milestone, history)
        if verdict is not None:
            yield verdict
            if verdict.stop:
                return
