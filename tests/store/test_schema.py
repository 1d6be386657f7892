"""The schema: migrations make exactly what the code describes, and its constraints carry the promises."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic import command
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.schema import CreateSchema

from durable import Workflow, migrate, scratch, step
from durable.migrate import SchemaAhead, SchemaOutdated
from durable.schema import metadata
from tests.conftest import Subscription


class Renewal(Workflow[Subscription]):
    @step
    def act(self):
        pass


@pytest.fixture
def blank(durable_server):
    """An engine on an empty database."""
    with scratch.database(durable_server, "durable_blank") as url:
        engine = create_engine(url)
        yield engine
        engine.dispose()


def described(engine):
    """Return everything that defines the schema, as Postgres itself tells it."""
    queries = [
        "SELECT table_name, column_name, data_type, is_nullable, column_default, is_identity, generation_expression "
        "FROM information_schema.columns WHERE table_schema = 'durable' AND table_name <> 'alembic_version' "
        "ORDER BY table_name, ordinal_position",
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE connamespace = 'durable'::regnamespace AND conrelid::regclass::text NOT LIKE '%alembic%' ORDER BY 1, 2",
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'durable' "
        "AND tablename <> 'alembic_version' ORDER BY 1",
        "SELECT c.relname, a.attname, col_description(c.oid, a.attnum) FROM pg_class c JOIN pg_attribute a "
        "ON a.attrelid = c.oid WHERE c.relnamespace = 'durable'::regnamespace AND a.attnum > 0 "
        "AND c.relkind = 'r' AND c.relname <> 'alembic_version' ORDER BY 1, 2",
    ]
    with engine.connect() as conn:
        return [[tuple(row) for row in conn.execute(text(query))] for query in queries]


def test_the_migrations_make_exactly_the_tables_of_the_code(runtime, blank):
    with blank.begin() as conn:
        conn.execute(CreateSchema("durable"))
        metadata.create_all(conn)

    assert described(runtime.engine) == described(blank)


def test_alembic_finds_nothing_left_to_migrate(runtime):
    with runtime.engine.begin() as conn:
        command.check(migrate.config(conn))


def test_migrating_twice_or_ten_times_at_once_is_harmless(blank):
    with ThreadPoolExecutor(10) as pool:
        for future in [pool.submit(migrate.migrate, blank) for _ in range(10)]:
            future.result()

    migrate.check(blank)


def test_a_migration_leaves_the_applications_own_tables_alone(blank):
    with blank.begin() as conn:
        conn.execute(text("CREATE TABLE orders (id int)"))
    migrate.migrate(blank)
    with blank.begin() as conn:
        command.check(migrate.config(conn))
        conn.execute(text("SELECT * FROM orders"))


def test_a_migration_can_be_taken_back(blank):
    migrate.migrate(blank)
    with blank.begin() as conn:
        command.downgrade(migrate.config(conn), "base")
    with blank.connect() as conn:
        left = conn.execute(text("SELECT tablename FROM pg_tables WHERE schemaname = 'durable'")).scalars().all()

    assert left == ["alembic_version"]


def test_the_printed_sql_makes_the_same_schema(runtime, blank):
    with blank.begin() as conn:
        conn.exec_driver_sql(migrate.sql().replace("BEGIN;", "").replace("COMMIT;", ""))

    assert described(runtime.engine) == described(blank)


def test_an_outdated_database_is_named_with_the_command_that_mends_it(blank):
    with pytest.raises(SchemaOutdated, match="run `durable migrate`"):
        migrate.check(blank)


def test_a_database_that_newer_code_has_migrated_stays_as_it_is_and_is_not_called_outdated(blank):
    migrate.migrate(blank)
    with blank.begin() as conn:
        conn.execute(text("UPDATE durable.alembic_version SET version_num = '9999'"))

    migrate.migrate(blank)

    assert migrate.check(blank, may_be_ahead=True) == "9999"
    with pytest.raises(SchemaAhead, match="deploy the newer code"):
        migrate.check(blank)


FORBIDDEN = {
    "two live executions of one workflow": """
        INSERT INTO durable.executions (id, workflow_id, step, state, attempt, reattempts, crashes, idempotency_key,
                                        scheduled_for)
        SELECT gen_random_uuid(), workflow_id, step, 'scheduled', 1, 0, 0, gen_random_uuid(), now()
        FROM durable.executions""",
    "two workflows in one slot": """
        INSERT INTO durable.workflows (id, name, version, hero_type, hero_key, state, queue, priority, data, unique_key,
                                       created_at)
        SELECT gen_random_uuid(), name, 1, hero_type, hero_key, 'paused', 'q', 0, '{}', unique_key, now()
        FROM durable.workflows""",
    "an unknown state": "UPDATE durable.workflows SET state = 'sleeping'",
    "an unknown state of an execution": "UPDATE durable.executions SET state = 'sleeping'",
    "an unknown outcome": "UPDATE durable.executions SET outcome = 'great', state = 'completed', finished_at = now()",
    "ended without a time": "UPDATE durable.workflows SET state = 'finished'",
    "a time of end while it goes on": "UPDATE durable.workflows SET ended_at = now()",
    "paused without a reason": "UPDATE durable.workflows SET state = 'paused'",
    "half a hero": "UPDATE durable.workflows SET hero_key = NULL",
    "data that is not an object": "UPDATE durable.workflows SET data = '[]'",
    "a stop asked of a workflow that does not perform": "UPDATE durable.workflows SET stop_requested = 'pause'",
    "in progress without a claim": "UPDATE durable.executions SET state = 'in_progress', started_at = now()",
    "a claim that is not in progress": "UPDATE durable.executions SET claim = gen_random_uuid(), lease_until = now()",
    "a claim without a lease": """
        UPDATE durable.executions SET state = 'in_progress', started_at = now(), claim = gen_random_uuid()""",
    "in progress but not started": """
        UPDATE durable.executions SET state = 'in_progress', claim = gen_random_uuid(), lease_until = now()""",
    "scheduled but started": "UPDATE durable.executions SET started_at = now()",
    "completed without a time": "UPDATE durable.executions SET state = 'completed', outcome = 'success'",
    "completed without an outcome": "UPDATE durable.executions SET state = 'completed', finished_at = now()",
    "an execution of no workflow": "UPDATE durable.executions SET workflow_id = gen_random_uuid()",
    "a zeroth attempt": "UPDATE durable.executions SET attempt = 0",
}


@pytest.mark.parametrize("what", list(FORBIDDEN))
def test_the_database_refuses(runtime, subscription, what):
    Renewal.create(subscription)

    with pytest.raises(IntegrityError), runtime.engine.begin() as conn:
        conn.execute(text(FORBIDDEN[what]))


def test_deleting_a_workflow_deletes_its_executions_and_its_audit(runtime, subscription):
    workflow = Renewal.create(subscription)
    workflow.pause().resume().cancel()
    with runtime.engine.begin() as conn:
        conn.execute(text("DELETE FROM durable.workflows"))
        for table in ("executions", "outbox", "audit"):
            assert conn.execute(text(f"SELECT count(*) FROM durable.{table}")).scalar() == 0
