"""Rows that earlier revisions have stored."""

OLD_ROWS = """
insert into experiments (id, name, spec, tags, status, priority, trial_count, event_count, created_at)
values ('x-1', 'old', '{}', '{}', 'running', 0, 1, 1, '2026-01-01');
insert into trials (id, experiment_id, number, params, origin, status, killed, attempt_count, changed_at_event,
created_at) values ('t-1', 'x-1', 0, '{}', 'search', 'running', false, 1, 1, '2026-01-01');
insert into attempts (trial_id, experiment_id, number, holder, lease_token, first_step, next_sequence, started_at)
values ('t-1', 'x-1', 1, 'here', 'a token', 1, 0, '2026-01-01');
insert into milestones (experiment_id, milestone, trial_id, number, pool, value) values ('x-1', 3, 't-1', 0, 0, 0.5)
"""
