"""Relays and reapers of their own: one that is killed in the middle, and several at once."""

from __future__ import annotations

import signal

import pytest
from sqlalchemy import text

from tests.acceptance.processes.app import Chain, Hold, Later
from tests.acceptance.processes.stage import Stage, WorkerCommand
from tests.waiting import until

WITHOUT_RELAY = {"relay_in_workers": "false"}
WITHOUT_REAPER = {"reaper_in_workers": "false"}
QUEUE = "dramatiq:default"


@pytest.mark.slow
def test_what_a_killed_relay_had_sent_but_not_committed_is_in_the_queue_once(stage):
    setting, armed = stage.arm("relay.before_commit")
    armed.touch()
    Later.create_many(stage.subjects(200), wait="300ms")
    relay = stage.run_command("durable.cli", "relay", failpoints=setting)
    until(lambda: relay.ended, "the relay is killed")
    assert relay.process.returncode == -signal.SIGKILL, relay.told
    assert (queued(stage), sends(stage)) == (200, {0: 200})

    stage.run_command("durable.cli", "relay", failpoints=setting)
    until(lambda: 0 not in sends(stage), "the next relay has sent everything")
    assert (queued(stage), sends(stage)) == (200, {1: 200})

    stage.start_worker(**WITHOUT_RELAY)
    stage.await_finished(200)
    stage.assert_sound()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_what_a_killed_relay_had_in_hand_is_sent_by_another_and_runs_once(stage):
    setting, armed = stage.arm("relay.before_commit")
    rounds, each = 6, 50
    relays = [stage.run_command("durable.cli", "relay", failpoints=setting) for _ in range(2)]
    for _ in range(2):
        stage.start_worker(**WITHOUT_RELAY)

    for _ in range(rounds):
        for relay in relays:
            await_loop(relay)
        armed.touch()
        Chain.create_many(stage.subjects(each), wait="300ms")
        dead = until(lambda: next((relay for relay in relays if relay.ended), None), "one of them is killed")
        assert dead.process.returncode == -signal.SIGKILL, dead.told
        relays.remove(dead)
        relays.append(stage.run_command("durable.cli", "relay", failpoints=setting))

    stage.await_finished(rounds * each)
    assert stage.successes() == {"one": rounds * each, "two": rounds * each, "three": rounds * each}
    stage.assert_sound()


@pytest.mark.slow
def test_two_relays_send_each_message_once(stage):
    waits = range(200, 3000, 70)
    for relay in [stage.run_command("durable.cli", "relay") for _ in range(2)]:
        await_loop(relay)
    heroes = stage.subjects(10 * len(waits))
    for number, wait in enumerate(waits):
        Later.create_many(heroes[10 * number : 10 * number + 10], wait=f"{wait}ms")

    until(lambda: 0 not in sends(stage), "everything is sent")
    assert (queued(stage), sends(stage)) == (len(heroes), {1: len(heroes)})

    stage.start_worker(**WITHOUT_RELAY)
    stage.await_finished(len(heroes))
    assert stage.successes() == {"note": len(heroes)}
    stage.assert_sound()


@pytest.mark.slow
def test_three_reapers_recover_each_claim_of_a_killed_worker_once(stage, tmp_path):
    gate = tmp_path / "gate"
    for reaper in [stage.run_command("durable.cli", "reap") for _ in range(3)]:
        await_loop(reaper)
    victim = stage.start_worker(threads=8, **WITHOUT_REAPER)
    held = Hold.create_many(stage.subjects(20), str(gate)).created
    until(lambda: stage.began() == 8, "the worker holds as many claims as it has threads")

    with stage.engine.begin() as holder:
        locked = "SELECT id FROM durable.workflows WHERE state = 'performing' ORDER BY id LIMIT 7 FOR UPDATE"
        assert len(holder.execute(text(locked)).all()) == 7
        victim.signal_worker(signal.SIGKILL)
        until(lambda: recovered(stage) == [1], "the one claim that nobody holds is recovered")
        assert waiting_for_rows(stage) == 0, "they pass over what somebody holds"
    stage.start_worker(threads=20, **WITHOUT_REAPER)
    until(lambda: stage.began() == 8 + 20, "another worker runs all of them, those that were only fetched too")
    gate.touch()

    stage.await_finished(20)
    assert recovered(stage) == [1] * 8
    assert stage.successes() == {"hold": 20, "after": 20}
    assert [stage.effects(workflow_id) for workflow_id in held] == [{"hold": 1, "after": 1}] * 20
    stage.assert_sound()


def await_loop(command: WorkerCommand) -> None:
    """Wait until a relay or a reaper of its own is at work."""
    until(lambda: " runs" in command.told or command.ended, "it runs")
    assert not command.ended, command.told


def queued(stage: Stage) -> int:
    return int(stage.redis.llen(QUEUE))


def sends(stage: Stage) -> dict[int, int]:
    """Return how many messages were sent how often, by what is committed."""
    return dict(stage.rows("SELECT sends, count(*) FROM durable.outbox GROUP BY sends"))


def recovered(stage: Stage) -> list[int]:
    """Return how often those workflows were recovered that ever were."""
    query = "SELECT count(*) FROM durable.executions WHERE outcome = 'recovered' GROUP BY workflow_id"
    return [count for (count,) in stage.rows(query)]


def waiting_for_rows(stage: Stage) -> int:
    return int(stage.ask("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
