"""Somebody proves an address, a phone and who they are, or does not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from actors.account_verification import AccountVerification, enter_email_code
from actors.gateways import identity, mailer, sms
from durable.testing import assert_step_executed, assert_workflow_state, perform_next_step, speedrun
from tests.acceptance.conftest import due_in, told


@pytest.fixture
def verification(shop, user):
    made = AccountVerification.create(user)
    shop.commit()
    return made


def enter(shop, user, messenger):
    code = told(messenger)[-1].removeprefix("your code is ")
    assert enter_email_code(user, code)
    shop.commit()


def test_an_account_is_verified_once_both_codes_are_entered(shop, user, verification):
    perform_next_step(verification)
    enter(shop, user, mailer)
    user.phone_verified = True
    shop.commit()
    speedrun(verification)

    assert_workflow_state(verification, "finished")
    assert verification.result == {"case": "case-1"}
    assert identity.asked == [user.email]
    shop.refresh(user)
    assert user.verified_at == assert_step_executed(verification, "complete").started_at


def test_the_phone_gets_a_code_of_its_own(shop, user, verification):
    user.email_verified = True
    shop.commit()
    for _ in range(3):
        perform_next_step(verification)

    assert_step_executed(verification, "verify_email", state="skipped")
    assert told(sms) == [f"your code is {verification.data['phone_code']}"]


def test_a_wrong_code_verifies_nothing(shop, user, verification):
    perform_next_step(verification)

    assert not enter_email_code(user, "not the code")
    assert not user.email_verified


def test_a_code_means_nothing_before_or_after_the_verification(shop, user):
    assert not enter_email_code(user, "000000")


def test_a_code_that_is_not_entered_is_waited_for(verification):
    perform_next_step(verification)
    perform_next_step(verification)

    assert verification.next_step == "await_email"
    assert due_in(verification) == timedelta(minutes=5)


def test_nobody_is_waited_for_longer_than_an_hour(verification):
    speedrun(verification)

    assert_workflow_state(verification, "canceled")
    assert verification.reason == "the code was never entered"
    assert assert_step_executed(verification, "await_email", state="canceled").attempt == 13


def test_somebody_without_a_phone_is_not_asked_for_one(shop, user, verification):
    user.email_verified, user.phone = True, ""
    shop.commit()
    speedrun(verification)

    assert_step_executed(verification, "verify_phone", state="skipped")
    assert_workflow_state(verification, "finished")
    assert sms.outbox == []
