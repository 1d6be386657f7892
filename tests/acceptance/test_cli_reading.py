"""`durable list` and `durable show`."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from sqlalchemy import text

from durable import Workflow, registry, step
from durable.testing import perform_next_step, speedrun, travel
from tests.acceptance.test_cli import printed_json, run
from tests.conftest import Subscription


class Harvest(Workflow[Subscription], queue="fields", unique="none"):
    @step
    def mow(self):
        self.data["rows"] = 12
        return "mown"

    @step(wait="3d")
    def bind(self):
        raise LookupError("no string [bold]left[/bold] \x1b[31m")


class Sowing(Workflow[None], name="a sowing", unique="none"):
    @step
    def sow(self):
        self.finish({"seeds": 3})


def listed(*arguments):
    return [one["id"] for one in printed_json(run("list", "--json", *arguments))["workflows"]]


def ids(*workflows):
    return [str(workflow.id) for workflow in workflows]


# --- list


def test_list_shows_the_newest_first_with_all_that_is_asked_of_it(subscription):
    older, newer = Harvest.create(subscription), Sowing.create(None)
    older.pause("it rains")

    document = printed_json(run("list", "--json"))

    assert listed() == ids(newer, older)
    assert document["after"] is None
    assert document["workflows"][1] == {
        "id": str(older.id),
        "class": Harvest.options.name,
        "version": 1,
        "hero": {"type": "tests.conftest.Subscription", "key": str(subscription.id)},
        "state": "paused",
        "step": "mow",
        "reason": "it rains",
        "queue": "fields",
        "priority": 0,
        "created_at": older.created_at.isoformat(),
        "ended_at": None,
    }


def test_list_is_narrowed_by_state_class_and_hero(subscription, new_subscription):
    ready, paused = Harvest.create(subscription), Harvest.create(new_subscription()).pause()
    canceled = Sowing.create(None).cancel()

    assert listed("--state", "paused") == ids(paused)
    assert listed("--state", "paused", "--state", "canceled") == ids(canceled, paused)
    assert listed("--class", "a sowing") == ids(canceled)
    assert listed("--hero", f"tests.conftest.Subscription:{subscription.id}") == ids(ready)


def test_a_class_and_a_hero_may_be_named_by_the_end_of_their_names(subscription):
    workflow = Harvest.create(subscription)

    assert listed("--class", "Harvest") == listed("--class", "test_cli_reading.Harvest") == ids(workflow)
    assert listed("--hero", f"conftest.Subscription:{subscription.id}") == ids(workflow)


def test_a_class_that_is_not_loaded_can_be_listed_and_shown(subscription):
    workflow = Harvest.create(subscription)
    name, versions = Harvest.options.name, registry.loaded()[Harvest.options.name]
    registry.forget(name)
    try:
        assert listed("--class", "Harvest") == ids(workflow)
        assert run("show", workflow.id).exit_code == 0
    finally:
        registry.register(versions[1], name, 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--class", "Harfest"), "there is no workflow class 'Harfest': did you mean Harvest?"),
        (("--class", "Zzz"), "there is no workflow class 'Zzz': known are "),
        (("--hero", "Zzz:1"), "there is no hero type 'Zzz': known are "),
        (("--after", "xyz"), "there is no workflow with the id xyz"),
    ],
)
def test_list_does_not_find_what_is_not_there(subscription, arguments, says):
    Harvest.create(subscription)

    missing = run("list", *arguments)

    assert (missing.exit_code, missing.stdout) == (3, "")
    assert says in missing.stderr


@pytest.mark.parametrize("arguments", [("--state", "asleep"), ("--limit", "0"), ("--hero", "Subscription")])
def test_list_refuses_what_it_cannot_read(runtime, arguments):
    assert run("list", *arguments).exit_code == 2


def test_pages_follow_each_other(subscription):
    first, second, third = (Harvest.create(subscription) for _ in range(3))

    page = printed_json(run("list", "--json", "--limit", "2"))

    assert [one["id"] for one in page["workflows"]] == ids(third, second)
    assert page["after"] == str(second.id)
    assert listed("--limit", "2", "--after", page["after"]) == ids(first)
    assert f"--after {second.id}" in run("list", "--limit", "2").stdout


def test_an_empty_list_says_so(runtime):
    assert run("list").stdout == "There are no such workflows.\n"


@pytest.mark.parametrize("columns", range(65, 125, 5))
@pytest.mark.parametrize("reason", [None, "rain", "a reason so long that it cannot stand in any line " * 3])
def test_a_list_of_any_width_shows_every_id_in_one_piece_and_every_reason_in_one_line(subscription, columns, reason):
    workflow = Harvest.create(subscription)
    if reason:
        workflow.pause(reason)

    lines = run("list", columns=columns).stdout.splitlines()

    assert [str(workflow.id) in line for line in lines].count(True) == 1
    assert max(map(len, lines)) <= columns
    assert len(lines) <= 2 + (3 if reason else 2)


@pytest.mark.parametrize("columns", [80, 120])
def test_a_list_fits_the_terminal_and_shows_every_id_in_one_piece(subscription, columns):
    workflow = Harvest.create(subscription).pause("a reason so long that it cannot stand in any line " * 3)
    travel(hours=3)

    printed = run("list", columns=columns).stdout

    assert max(len(line) for line in printed.splitlines()) <= columns
    for shown in (str(workflow.id), f"Subscription:{subscription.id}", "Harvest", "paused", "mow", "3h", "a reason so"):
        assert shown in printed


def test_a_wide_list_has_one_line_for_each_workflow(subscription):
    Harvest.create(subscription).pause("one\ntwo")
    Sowing.create(None)

    assert len(run("list", columns=120).stdout.splitlines()) == 2 + 2


# --- show


def stopped(subscription):
    """Return a workflow whose second step raised."""
    workflow = Harvest.create(subscription, {"acres": 4})
    return perform_next_step(perform_next_step(workflow))


def test_show_has_everything_of_a_workflow(subscription):
    workflow = stopped(subscription)
    workflow.resume(by="ada", reason="string was bought")

    document = printed_json(run("show", workflow.id, "--json"))

    assert (document["state"], document["step"], document["input"]) == ("ready", "bind", {"acres": 4})
    assert (document["data"], document["result"], document["stop_requested"]) == ({"rows": 12}, None, None)
    assert [(e["step"], e["attempt"], e["state"], e["outcome"]) for e in document["history"]] == [
        ("mow", 1, "completed", "success"),
        ("bind", 1, "failed", "paused"),
        ("bind", 2, "scheduled", None),
    ]
    assert document["history"][0]["result"] == "mown"
    assert "LookupError" in document["history"][1]["error_traceback"]
    (entry,) = document["audit"]
    assert (entry["verb"], entry["by"], entry["reason"]) == ("resume", "ada", "string was bought")


def test_show_prints_what_finish_gave(runtime):
    workflow = speedrun(Sowing.create(None))

    assert printed_json(run("show", workflow.id, "--json"))["result"] == {"seeds": 3}
    assert '{"seeds": 3}' in run("show", workflow.id).stdout


@pytest.mark.parametrize("columns", [80, 120])
def test_what_people_are_shown_fits_the_terminal(subscription, columns):
    workflow = stopped(subscription)
    workflow.resume(by="ada", reason="string was bought")

    printed = run("show", workflow.id, columns=columns).stdout

    assert max(len(line) for line in printed.splitlines()) <= columns
    for shown in (str(workflow.id), "ready", '{"acres": 4}', '{"rows": 12}', "History", "mow", "bind", "Errors", "ada"):
        assert shown in printed


def test_text_of_strangers_is_shown_as_it_is_and_cannot_steer_the_terminal(subscription):
    printed = run("show", stopped(subscription).id).stdout

    assert "LookupError: no string [bold]left[/bold]" in printed
    assert "\x1b" not in printed


def test_a_large_value_is_cut_for_people_and_whole_for_programs(runtime):
    given = {f"key {number}": "x" * 10 for number in range(50)}
    workflow = Sowing.create(None, given)

    assert re.search(r"… \d+ more lines: --json has all", run("show", workflow.id).stdout)
    assert printed_json(run("show", workflow.id, "--json"))["input"] == given


@pytest.mark.parametrize(
    ("verb", "says"),
    [("pause", "pause, done when the step ends"), ("cancel", "cancel, done within about a second, by interrupting")],
)
def test_a_step_that_runs_shows_what_was_asked_of_it(runtime, verb, says):
    workflow = Sowing.create(None)
    with runtime.engine.begin() as conn:
        conn.execute(
            text(
                "UPDATE durable.executions SET state = 'in_progress', claim = gen_random_uuid(), worker = 'w', "
                "started_at = now(), lease_until = now()"
            )
        )
        conn.execute(text("UPDATE durable.workflows SET state = 'performing'"))
        conn.execute(text("DELETE FROM durable.outbox"))
    getattr(workflow, verb)()

    assert says in run("show", workflow.id).stdout


@pytest.mark.parametrize("id", [uuid4(), "nonsense"])
def test_an_unknown_id_is_not_found(runtime, id):
    missing = run("show", id)

    assert (missing.exit_code, missing.stdout) == (3, "")
    assert f"there is no workflow with the id {id}" in missing.stderr
