"""The outbox and the relay: every message is sent when it is due, again when it was lost, and no more often."""

from __future__ import annotations

from datetime import timedelta
from threading import Event

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from durable import Workflow, relay, step
from durable.runtime import driver_connection
from durable.store import outbox
from durable.store.rows import Letter
from durable.testing import travel
from tests.conftest import Subscription
from tests.scenes import claim

QUEUE = "dramatiq:letters"


class Renewal(Workflow[Subscription], queue="letters"):
    @step
    def charge(self):
        pass

    @step
    def thank(self):
        pass


class Quiet(Workflow[Subscription], queue="letters", unique="none"):
    @step
    def once(self):
        pass


def waiting(runtime):
    """Return the ids in the queue, in order."""
    return [key.decode() for key in runtime.broker.client.lrange(QUEUE, 0, -1)]


def rows(runtime):
    with runtime.engine.connect() as conn:
        return conn.execute(
            text(
                "SELECT execution_id, sends, extract(epoch FROM due_at - statement_timestamp()) AS due_in "
                "FROM durable.outbox ORDER BY due_at"
            )
        ).all()


def flushed(runtime):
    assert runtime.courier.flush()
    return waiting(runtime)


def test_who_commits_sends_the_message_and_the_relay_looks_after_it_two_seconds_later(with_broker, subscription):
    workflow = Renewal.create(subscription)

    assert flushed(with_broker) == [str(workflow.current_execution.id)]
    [row] = rows(with_broker)
    assert (row.sends, 1.5 < row.due_in <= 2) == (0, True)
    assert relay.drain(with_broker) == 0


def test_a_message_that_is_still_in_redis_is_not_put_there_twice(with_broker, subscription):
    workflow = Renewal.create(subscription)
    flushed(with_broker)
    for seconds in (3, 31, 61, 121):
        travel(seconds=seconds)
        assert relay.drain(with_broker) == 1

    assert waiting(with_broker) == [str(workflow.current_execution.id)]
    assert rows(with_broker)[0].sends == 4


def test_a_message_that_nobody_sent_is_sent_by_the_relay(with_broker, subscription, monkeypatch):
    monkeypatch.setattr(with_broker.courier, "send", lambda letters: None)  # as if its process had died here
    workflow = Renewal.create(subscription)
    travel(seconds=3)

    assert relay.drain(with_broker) == 1
    assert waiting(with_broker) == [str(workflow.current_execution.id)]


def test_without_a_broker_of_its_own_a_process_leaves_all_messages_to_the_relay(runtime, subscription):
    Renewal.create(subscription)

    assert rows(runtime)[0].due_in <= 0


def test_a_wait_is_a_row_and_nothing_in_redis_until_it_is_due(with_broker, subscription):
    workflow = Renewal.create(subscription, wait="14d")
    travel(days=13, hours=23)
    assert (relay.drain(with_broker), flushed(with_broker)) == (0, [])
    travel(hours=2)

    assert relay.drain(with_broker) == 1
    assert waiting(with_broker) == [str(workflow.current_execution.id)]


def test_what_is_due_is_sent_in_the_order_of_due_times(with_broker, new_subscription):
    for minutes in (50, 10, 30, 20, 40):
        Renewal.create(new_subscription(), wait=timedelta(minutes=minutes))
    travel(hours=1)
    relay.drain(with_broker)

    by_due_time = sorted(Renewal.list(), key=lambda workflow: workflow.current_execution.scheduled_for)
    assert waiting(with_broker) == [str(workflow.current_execution.id) for workflow in by_due_time]


def test_of_messages_due_at_the_same_time_the_lower_priority_goes_first(with_broker, new_subscription):
    for priority in (5, -5, 0):
        Quiet.create(new_subscription(), wait="1h", priority=priority)
    with with_broker.engine.begin() as conn:
        conn.execute(text("UPDATE durable.outbox SET due_at = (SELECT max(due_at) FROM durable.outbox)"))
    travel(hours=2)
    relay.drain(with_broker)

    priorities = {str(workflow.current_execution.id): workflow.priority for workflow in Quiet.list()}
    assert [priorities[key] for key in waiting(with_broker)] == [-5, 0, 5]


def test_the_next_look_comes_after_thirty_seconds_then_twice_that_and_so_on(with_broker, subscription):
    Renewal.create(subscription)
    flushed(with_broker)
    looks = []
    travel(seconds=3)
    for _ in range(7):
        relay.drain(with_broker)
        with with_broker.hot() as conn:
            looks.append(outbox.next_due_in(conn, with_broker.clock))
        travel(seconds=looks[-1].total_seconds())

    assert [round(look.total_seconds()) for look in looks] == [30, 60, 120, 240, 480, 900, 900]


def test_what_somebody_s_open_transaction_holds_is_waited_for_in_peace(with_broker, subscription):
    workflow = Renewal.create(subscription)
    flushed(with_broker)
    travel(seconds=3)
    with Session(with_broker.engine) as session, session.begin():
        Renewal.get(workflow.id, session=session).pause()
        assert relay.look(with_broker, with_broker.broker) == relay.HELD


def test_after_a_flush_what_somebody_s_open_transaction_holds_is_passed_over(with_broker, new_subscription):
    held, free = (Renewal.create(new_subscription()) for _ in range(2))
    flushed(with_broker)
    travel(seconds=3)
    relay.drain(with_broker)
    with Session(with_broker.engine) as session, session.begin():
        Renewal.get(held.id, session=session).pause()
        with_broker.broker.client.flushall()
        relay.drain(with_broker)
        assert waiting(with_broker) == [str(free.current_execution.id)]


def test_a_backlog_that_nobody_takes_for_hours_stays_as_long_as_it_is(with_broker, new_subscription):
    for _ in range(20):
        Renewal.create(new_subscription())
    flushed(with_broker)

    for _ in range(10):
        travel(minutes=20)
        relay.drain(with_broker)

    assert len(waiting(with_broker)) == 20


def test_after_a_flush_everything_that_was_sent_is_sent_again_at_once(with_broker, new_subscription):
    relay.drain(with_broker)
    workflows = [Renewal.create(new_subscription()) for _ in range(3)]
    flushed(with_broker)
    travel(seconds=3)
    relay.drain(with_broker)
    with_broker.broker.client.flushall()

    assert relay.drain(with_broker) == 3
    assert sorted(waiting(with_broker)) == sorted(str(workflow.current_execution.id) for workflow in workflows)
    assert relay.drain(with_broker) == 0


def test_after_a_flush_nothing_that_is_not_due_is_sent(with_broker, subscription):
    relay.drain(with_broker)
    Renewal.create(subscription, wait="1h")
    with_broker.broker.client.flushall()

    assert (relay.drain(with_broker), waiting(with_broker)) == (0, [])


def test_a_message_that_hangs_in_redis_is_sent_again_when_nothing_waits_before_it(with_broker, subscription):
    workflow = Renewal.create(subscription)
    key = str(workflow.current_execution.id)
    flushed(with_broker)
    with_broker.broker.client.lrem(QUEUE, 1, key)  # fetched by somebody, and the answer was lost
    for seconds, seen in ((3, []), (31, [key])):
        travel(seconds=seconds)
        relay.drain(with_broker)
        assert waiting(with_broker) == seen


def test_a_message_that_hangs_waits_behind_a_backlog_until_it_counts_as_stuck(with_broker, subscription):
    workflow = Renewal.create(subscription)
    key = str(workflow.current_execution.id)
    flushed(with_broker)
    client = with_broker.broker.client
    client.lrem(QUEUE, 1, key)
    client.hset(f"{QUEUE}.msgs", "something before it", b"{}")
    client.rpush(QUEUE, "something before it")
    for seconds in (3, 31, 61, 121, 241):
        travel(seconds=seconds)
        relay.drain(with_broker)
        assert waiting(with_broker) == ["something before it"]
    travel(minutes=15)
    relay.drain(with_broker)

    assert waiting(with_broker) == ["something before it", key]


def test_a_row_whose_execution_is_gone_is_dropped(with_broker, subscription):
    Renewal.create(subscription)
    flushed(with_broker)
    with with_broker.engine.begin() as conn:
        conn.execute(text("DELETE FROM durable.workflows"))
    travel(seconds=3)

    assert relay.drain(with_broker) == 0
    assert rows(with_broker) == []


def test_a_claim_takes_the_message_away(with_broker, subscription):
    workflow = Renewal.create(subscription)
    flushed(with_broker)
    claim(with_broker, workflow)

    assert rows(with_broker) == []


def test_two_relays_share_what_is_due(with_broker, new_subscription):
    Renewal.create_many([new_subscription() for _ in range(20)], wait="1m")
    travel(minutes=2)
    with with_broker.engine.begin() as one_relay, with_broker.engine.begin() as other_relay:
        first, second = driver_connection(one_relay), driver_connection(other_relay)
        arguments = {"limit": 15, "again": timedelta(seconds=30), "stuck": timedelta(minutes=15)}
        one = outbox.take_due(first, with_broker.clock, **arguments)
        other = outbox.take_due(second, with_broker.clock, **arguments)

    assert (len(one), len(other)) == (15, 5)
    assert not {letter.execution_id for letter in one} & {letter.execution_id for letter in other}


def test_a_broker_that_does_not_answer_leaves_rows_as_they_were(with_broker, subscription, monkeypatch):
    Renewal.create(subscription, wait="1m")
    travel(minutes=2)
    before = [(row.execution_id, row.sends) for row in rows(with_broker)]

    def broken(letters):
        raise ConnectionError("gone")

    monkeypatch.setattr(with_broker.broker, "deliver", broken)
    with pytest.raises(ConnectionError):
        relay.drain(with_broker)

    assert [(row.execution_id, row.sends) for row in rows(with_broker)] == before


def test_a_short_wait_wakes_a_relay_that_sleeps(with_broker, subscription):
    with_broker.broker.client.delete("dramatiq:durable.bell")
    Renewal.create(subscription, wait="2s")
    with_broker.courier.flush()
    assert with_broker.broker.client.llen("dramatiq:durable.bell") == 1

    woken = Event()
    with_broker.broker.await_ring(30)
    woken.set()
    assert with_broker.broker.client.llen("dramatiq:durable.bell") == 0


def test_the_courier_says_so_and_goes_on_when_the_broker_does_not_answer(with_broker, monkeypatch, caplog):
    def broken(letters):
        raise ConnectionError("gone")

    monkeypatch.setattr(with_broker.broker, "deliver", broken)
    with_broker.courier.send([Letter(execution_id="1", name="x", queue="letters")])

    assert with_broker.courier.flush()
    assert "the relay sends later what is due now: gone" in caplog.text


# --- put back


@pytest.fixture
def put_back(runtime):
    """Have the only message put back, and return for how many seconds."""

    def put(execution_id, times=1):
        with runtime.engine.begin() as conn:
            conn.execute(text("UPDATE durable.outbox SET sends = :times"), {"times": times})
            outbox.put_back(conn, runtime.clock, execution_id, wait=timedelta(seconds=1))
        return float(rows(runtime)[0].due_in)

    return put


@pytest.fixture
def able_worker(runtime):
    """A worker that has the class of what is put back, and serves its queue."""
    worker = {"classes": [Renewal.options.name], "queues": ["letters"]}
    with runtime.engine.begin() as conn:
        conn.execute(
            text(
                "INSERT INTO durable.workers (id, host, pid, lock_key, queues, classes, started_at, seen_at) "
                "VALUES ('able', 'host', 1, 1, :queues, :classes, now(), now())"
            ),
            worker,
        )
    yield
    with runtime.engine.begin() as conn:
        conn.execute(text("DELETE FROM durable.workers"))


def test_a_message_that_nobody_can_take_is_put_back_for_longer_each_time(subscription, put_back):
    execution = Renewal.create(subscription).current_execution

    assert [round(put_back(execution.id, times)) for times in (0, 1, 2, 6, 99)] == [1, 2, 4, 64, 64]


@pytest.mark.usefixtures("able_worker")
def test_a_message_that_another_worker_can_take_is_put_back_for_a_moment_however_often(subscription, put_back):
    execution = Renewal.create(subscription).current_execution

    assert all(0.9 < put_back(execution.id, times) < 2 for times in (0, 3, 99))


def test_a_message_that_is_not_due_is_not_put_back_to_an_earlier_time(subscription, put_back):
    execution = Renewal.create(subscription, wait="1h").current_execution

    assert put_back(execution.id) > 3500
