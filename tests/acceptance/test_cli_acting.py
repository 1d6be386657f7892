"""`durable start` and the verbs."""

from __future__ import annotations

import getpass
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel

from durable import Workflow, WorkflowState, registry, step
from durable.testing import perform_next_step, speedrun
from tests.acceptance.test_cli import printed_json, run
from tests.conftest import Subscription
from tests.scenes import claim, settle


class Baking(Workflow[Subscription], queue="ovens", priority=4):
    @step
    def knead(self):
        if self.hero.closed:
            raise LookupError("no flour")

    @step(wait="1h")
    def bake(self):
        self.data["told"] = self.resume_input

    @step
    def serve(self):
        pass


class Recipe(BaseModel):
    flour: int


class Cake(Workflow[None], unique="none"):
    input: Recipe

    @step
    def mix(self):
        pass


def hero_of(subscription):
    return f"conftest.Subscription:{subscription.id}"


# --- start


def test_start_creates_a_workflow_and_prints_nothing_but_its_id(subscription):
    done = run("start", "Baking", "--hero", hero_of(subscription), "--input", '{"loaves": 2}')

    workflow = Workflow.get(UUID(done.stdout.strip()))
    assert (done.exit_code, type(workflow), workflow.hero.id) == (0, Baking, subscription.id)
    assert (workflow.input, workflow.priority, workflow.next_step) == ({"loaves": 2}, 4, "knead")


def test_start_takes_a_wait_and_a_priority(subscription):
    done = run("start", Baking.options.name, "--hero", hero_of(subscription), "--wait", "3d", "--priority", "-7")

    workflow = Workflow.get(done.stdout.strip())
    assert workflow.priority == -7
    assert workflow.current_execution.scheduled_for - workflow.created_at == timedelta(days=3)


def test_start_tells_programs_what_was_started(runtime):
    document = printed_json(run("start", "Cake", "--input", '{"flour": 3}', "--json"))

    assert (document["class"], document["hero"], document["state"]) == (Cake.options.name, None, "ready")
    assert Cake.get(document["id"]).input == Recipe(flour=3)


def test_a_second_one_for_the_same_hero_is_refused_and_says_which_is_ongoing(subscription):
    first = Baking.create(subscription)

    refused = run("start", "Baking", "--hero", hero_of(subscription))

    assert (refused.exit_code, refused.stdout) == (1, "")
    assert str(first.id) in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("Bread",), 3, "there is no workflow class 'Bread'"),
        (("Baking", "--hero", "Zzz:1"), 3, "there is no hero type 'Zzz'"),
        (("Baking", "--hero", "conftest.Subscription:0"), 3, "Subscription with the key 0"),
        (("Baking", "--hero", "conftest.Subscription:xyz"), 3, "the key 'xyz' is not one that"),
        (("Baking", "--hero", "Subscription"), 2, "write TYPE:KEY, e.g. Order:42"),
        (("Baking", "--input", "{loaves: 2}"), 2, "--input is not JSON"),
        (("Baking", "--wait", "a while"), 2, "cannot read the duration 'a while'"),
        (("Baking", "--priority", "99999"), 1, "priority=99999 must be a whole number"),
        (("Cake", "--input", '{"flour": "much"}'), 1, "the input of tests.acceptance.test_cli_acting.Cake"),
        ((), 2, "Missing argument"),
    ],
)
def test_what_cannot_be_started_is_refused_in_a_sentence_and_nothing_is_written(runtime, arguments, code, says):
    refused = run("start", *arguments)

    assert (refused.exit_code, refused.stdout) == (code, "")
    assert says in refused.stderr
    assert code == 2 or len(refused.stderr.splitlines()) == 1
    assert Workflow.count() == 0


@pytest.mark.parametrize("key", ["xyz", "9" * 20])
def test_a_key_that_no_hero_can_have_is_told_in_our_own_words(runtime, key):
    refused = run("start", "Baking", "--hero", f"conftest.Subscription:{key}")

    assert refused.exit_code == 3
    assert refused.stderr == f"the key '{key}' is not one that a tests.conftest.Subscription can have\n"


# --- verbs


def test_pause_and_resume_keep_who_and_why(subscription):
    workflow = Baking.create(subscription)

    assert run("pause", workflow.id, "--reason", "no gas").stdout == f"{workflow.id} is paused\n"
    assert (workflow.refresh().state, workflow.reason) == (WorkflowState.PAUSED, "no gas")
    assert run("resume", workflow.id, "--by", "ada", "--reason", "gas is back").stdout == f"{workflow.id} is ready\n"

    assert [(entry.verb, entry.by, entry.reason) for entry in workflow.audit] == [
        ("pause", f"cli:{getpass.getuser()}", "no gas"),
        ("resume", "ada", "gas is back"),
    ]


def test_resume_takes_an_input_and_another_step(subscription):
    workflow = Baking.create(subscription).pause()

    run("resume", workflow.id, "--at", "bake", "--input", '{"heat": 240}')

    assert perform_next_step(workflow).data == {"told": {"heat": 240}}


def test_skip_passes_over_a_step(subscription):
    workflow = Baking.create(subscription)

    assert run("skip", workflow.id).exit_code == 0
    assert workflow.refresh().next_step == "bake"


def test_cancel_ends_a_workflow(subscription):
    workflow = Baking.create(subscription)

    assert run("cancel", workflow.id, "--reason", "burnt").stdout == f"{workflow.id} is canceled\n"
    assert (workflow.refresh().state, workflow.reason) == (WorkflowState.CANCELED, "burnt")


def test_retry_runs_an_ended_workflow_again_from_a_step(subscription):
    workflow = speedrun(Baking.create(subscription))

    run("retry", workflow.id, "--from-step", "serve")

    assert (workflow.refresh().state, workflow.next_step) == (WorkflowState.READY, "serve")


@pytest.mark.parametrize(
    ("verb", "becomes", "says"),
    [
        ("pause", "paused", "the pause is done when the step ends"),
        ("cancel", "canceled", "the cancel is done within about a second, by interrupting the step"),
    ],
)
def test_a_running_step_ends_first_and_the_command_says_how(runtime, subscription, verb, becomes, says):
    workflow = Baking.create(subscription)
    held = claim(runtime, workflow)

    asked = run(verb, workflow.id)

    assert asked.stdout == f"{workflow.id} is performing a step: {says}\n"
    settle(runtime, Baking, held)
    assert workflow.refresh().state == becomes


def test_several_are_done_though_one_is_refused(subscription, new_subscription):
    first, ended, last = (Baking.create(hero) for hero in (subscription, new_subscription(), new_subscription()))
    ended.cancel()

    done = run("pause", first.id, ended.id, last.id)

    assert done.exit_code == 1
    assert done.stdout == f"{first.id} is paused\n{last.id} is paused\n"
    assert f"cannot pause workflow {ended.id}, it is canceled" in done.stderr
    assert [w.refresh().state.value for w in (first, ended, last)] == ["paused", "canceled", "paused"]


def test_an_unknown_id_is_not_found_and_the_others_are_done(subscription):
    workflow, unknown = Baking.create(subscription), uuid4()

    done = run("pause", unknown, "nonsense", workflow.id)

    assert (done.exit_code, workflow.refresh().state) == (3, WorkflowState.PAUSED)
    assert f"there is no workflow with the id {unknown}" in done.stderr
    assert "there is no workflow with the id nonsense" in done.stderr


def test_a_refusal_counts_more_than_an_unknown_id(subscription):
    workflow = Baking.create(subscription)

    assert run("resume", uuid4(), workflow.id).exit_code == 1


def test_programs_learn_what_came_of_each(subscription):
    workflow, unknown = Baking.create(subscription), uuid4()

    document = printed_json(run("pause", workflow.id, unknown, "--json"))

    assert document["verb"] == "pause"
    paused, missing = document["results"]
    assert paused == {"id": str(workflow.id), "done": True, "state": "paused", "error": None}
    assert (missing["id"], missing["done"], missing["state"]) == (str(unknown), False, None)
    assert "there is no workflow" in missing["error"]


def test_an_input_that_is_not_json_changes_nothing(subscription):
    workflow = Baking.create(subscription).pause()

    refused = run("resume", workflow.id, "--input", "yes please")

    assert (refused.exit_code, "--input is not JSON" in refused.stderr) == (2, True)
    assert workflow.refresh().state is WorkflowState.PAUSED


def test_a_step_that_the_class_does_not_have_is_refused(subscription):
    workflow = Baking.create(subscription).pause()

    refused = run("resume", workflow.id, "--at", "fry")

    assert (refused.exit_code, "has no step 'fry' (it has knead, bake, serve)" in refused.stderr) == (1, True)


def test_without_its_class_a_workflow_can_be_canceled_but_not_skipped(subscription):
    workflow = Baking.create(subscription)
    name, versions = Baking.options.name, registry.loaded()[Baking.options.name]
    registry.forget(name)
    try:
        refused = run("skip", workflow.id)
        canceled = run("cancel", workflow.id)
    finally:
        registry.register(versions[1], name, 1)

    assert (refused.exit_code, "naming it in DURABLE_MODULES" in refused.stderr) == (1, True)
    assert canceled.exit_code == 0


def test_a_verb_without_an_id_is_a_mistake_of_usage(runtime):
    assert run("cancel").exit_code == 2
