"""A period's revenue is filed after a check, and only while the authority is open."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from actors.compliance import Compliance
from actors.gateways import authority
from actors.models import Charge, Report
from durable.testing import assert_step_executed, assert_workflow_state, perform_next_step, speedrun
from tests.acceptance.conftest import due_in


@pytest.fixture
def report(shop):
    for day, amount in ((14, 500), (15, 900), (16, 200), (17, 70)):
        shop.add(Charge(amount=amount, receipt="r", charged_at=datetime(2026, 2, day, 12, tzinfo=UTC)))
    made = Report(begins=date(2026, 2, 15), ends=date(2026, 2, 17), tax_number="GB 1")
    shop.add(made)
    shop.commit()
    return made


@pytest.fixture
def compliance(shop, report):
    made = Compliance.create(report)
    shop.commit()
    return made


def test_the_revenue_of_the_period_is_filed(shop, report, compliance):
    speedrun(compliance)

    assert_workflow_state(compliance, "finished")
    shop.refresh(report)
    assert (report.revenue, report.receipt) == (1100, "filing-1")
    assert authority.filed == [1100]


def test_the_check_runs_before_the_submission_though_it_is_written_after_it(compliance):
    speedrun(compliance)

    assert [e.step for e in compliance.history] == ["collect_revenue", "check_report", "submit_report"]


def test_an_incomplete_report_waits_for_a_person_who_completes_it(shop, report, compliance):
    report.tax_number = None
    shop.commit()
    speedrun(compliance)

    assert_workflow_state(compliance, "paused")
    failed = assert_step_executed(compliance, "check_report", state="failed")
    assert failed.error_class == "actors.compliance.IncompleteReport"
    assert authority.filed == []

    report.tax_number = "GB 2"
    compliance.resume(by="ann")
    shop.commit()
    speedrun(compliance)

    assert_workflow_state(compliance, "finished")
    assert authority.filed == [1100]


def test_a_person_may_skip_the_check(shop, report, compliance):
    report.tax_number = None
    shop.commit()
    speedrun(compliance)

    speedrun(compliance.skip(by="ann", reason="the number is on paper"))

    assert_step_executed(compliance, "check_report", state="skipped")
    assert_workflow_state(compliance, "finished")


def test_a_closed_authority_is_tried_an_hour_later(compliance):
    authority.is_open = False
    perform_next_step(compliance)

    assert compliance.next_step == "collect_revenue"
    assert due_in(compliance) == timedelta(hours=1)

    authority.is_open = True
    speedrun(compliance)
    assert_workflow_state(compliance, "finished")


def test_nobody_stays_signed_in_after_a_step_that_fails(compliance):
    authority.will_raise(RuntimeError("crash"))
    speedrun(compliance)

    assert_step_executed(compliance, "submit_report", state="failed")
    with pytest.raises(PermissionError):
        authority.submit(date(2026, 2, 15), date(2026, 2, 17), 0, key="a key")
