"""A customer gets a copy of everything the shop knows of them."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from actors.data_export import DataExport
from actors.gateways import ServiceDown, mailer, storage
from actors.models import Export, Order, OrderLine
from durable.testing import assert_step_executed, assert_workflow_state, perform_next_step, speedrun
from tests.acceptance.conftest import due_in, told


@pytest.fixture
def export(shop, user, shelf):
    shop.add(Order(user=user, email=user.email, lines=[OrderLine(sku="mug", quantity=2, price=900)]))
    shop.add(Order(email="somebody@else.example"))
    made = Export(user=user)
    shop.add(made)
    shop.commit()
    return made


@pytest.fixture
def exporting(shop, export):
    made = DataExport.create(export)
    shop.commit()
    return made


def test_a_customer_gets_their_own_records(shop, export, exporting):
    speedrun(exporting)

    assert_workflow_state(exporting, "finished")
    shop.refresh(export)
    assert export.exported_at == assert_step_executed(exporting, "write_to_storage").started_at
    records = [{"order": 1, "status": "placed", "total": 1800}]
    assert assert_step_executed(exporting, "gather_records").result == records
    assert json.loads(storage.files[str(export.path)]) == records
    assert told(mailer) == [f"your data is ready: {export.path}"]


def test_the_customer_sees_what_is_done_already(shop, export, exporting):
    seen = []
    while exporting.state == "ready":
        perform_next_step(exporting)
        shop.refresh(export)
        seen.append(export.last_step)

    assert seen == ["gather_records", "write_to_storage", "notify_user"]


def test_a_step_that_fails_is_not_seen_as_done(shop, export, exporting):
    perform_next_step(exporting)
    storage.will_raise(ServiceDown("disk full"))
    perform_next_step(exporting)

    shop.refresh(export)
    assert (export.last_step, export.path) == ("gather_records", None)
    assert due_in(exporting) == timedelta(seconds=30)


def test_what_was_gathered_is_kept_while_the_storage_is_down(exporting):
    storage.will_raise(*(ServiceDown("disk full") for _ in range(3)))
    speedrun(exporting)

    assert_workflow_state(exporting, "finished")
    assert [e.step for e in exporting.history].count("gather_records") == 1


def test_a_storage_that_stays_down_pauses_the_export(exporting):
    storage.go_down()
    speedrun(exporting)

    assert_workflow_state(exporting, "paused")
    assert assert_step_executed(exporting, "write_to_storage", state="failed").attempt == 4


def test_an_error_that_no_policy_names_pauses_the_export(exporting):
    storage.will_raise(PermissionError("read only"))
    speedrun(exporting)

    assert_workflow_state(exporting, "paused")
    assert exporting.next_step == "write_to_storage"
