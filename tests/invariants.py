"""What must hold in every committed snapshot, as SQL that returns no rows when all is well."""

from __future__ import annotations

from sqlalchemy import Engine, text

INVARIANTS = {
    "a workflow's live executions fit its state": """
        SELECT w.id, w.state, count(e.id) FILTER (WHERE e.state = 'scheduled') AS scheduled,
               count(e.id) FILTER (WHERE e.state = 'waiting') AS waiting,
               count(e.id) FILTER (WHERE e.state = 'in_progress') AS in_progress
        FROM durable.workflows w LEFT JOIN durable.executions e ON e.workflow_id = w.id
        GROUP BY w.id, w.state
        HAVING NOT CASE w.state
            WHEN 'ready' THEN count(e.id) FILTER (WHERE e.state = 'scheduled') = 1
                          AND count(e.id) FILTER (WHERE e.state IN ('waiting', 'in_progress')) = 0
            WHEN 'performing' THEN count(e.id) FILTER (WHERE e.state = 'in_progress') = 1
                          AND count(e.id) FILTER (WHERE e.state IN ('waiting', 'scheduled')) = 0
            WHEN 'waiting' THEN count(e.id) FILTER (WHERE e.state = 'waiting') = 1
            WHEN 'paused' THEN count(e.id) FILTER (WHERE e.state = 'in_progress') = 0
            ELSE count(e.id) FILTER (WHERE e.state IN ('scheduled', 'waiting', 'in_progress')) = 0 END""",
    "a message waits for every scheduled execution of a ready workflow, and for no other": """
        SELECT coalesce(o.execution_id, e.id), w.state, e.state
        FROM durable.executions e JOIN durable.workflows w ON w.id = e.workflow_id
        FULL JOIN durable.outbox o ON o.execution_id = e.id
        WHERE (o.execution_id IS NOT NULL) IS DISTINCT FROM (e.state = 'scheduled' AND w.state = 'ready')""",
    "a message is due when its execution is": """
        SELECT e.id FROM durable.outbox o JOIN durable.executions e ON e.id = o.execution_id
        WHERE o.due_at < e.scheduled_for""",
    "the claims of one workflow never overlap": """
        SELECT a.id, b.id FROM durable.executions a JOIN durable.executions b
            ON a.workflow_id = b.workflow_id AND a.seq < b.seq
        WHERE b.started_at < coalesce(a.finished_at, 'infinity') AND a.started_at IS NOT NULL""",
    "an ongoing workflow that is ready or performing stands at its live execution's step": """
        SELECT w.id FROM durable.workflows w JOIN durable.executions e ON e.workflow_id = w.id
        WHERE w.state IN ('ready', 'performing') AND e.state IN ('scheduled', 'in_progress')
          AND w.step IS DISTINCT FROM e.step""",
    "a slot is held by one workflow": """
        SELECT name, unique_key FROM durable.workflows
        WHERE unique_in IS NULL AND unique_key IS NOT NULL
          AND state NOT IN ('finished', 'canceled', 'failed', 'rolled_back')
        GROUP BY name, unique_key HAVING count(*) > 1""",
}


def violations(engine: Engine) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows that break an invariant, by invariant."""
    with engine.connect() as conn:
        found = {name: [tuple(row) for row in conn.execute(text(sql))] for name, sql in INVARIANTS.items()}
    return {name: rows for name, rows in found.items() if rows}
