"""News reaches a customer on the channels that they allow."""

from __future__ import annotations

import pytest

from actors.gateways import ServiceDown, mailer, push, sms
from actors.notification import News, Notification
from durable import InvalidInput
from durable.testing import assert_step_executed, assert_workflow_state, speedrun
from tests.acceptance.conftest import told


def notify(shop, user, **settings):
    for name, value in settings.items():
        setattr(user, name, value)
    notification = Notification.create(user, News(text="sale!"))
    shop.commit()
    return speedrun(notification)


def test_a_customer_who_allows_all_hears_it_by_mail_and_text_message(shop, user):
    notification = notify(shop, user, sms_enabled=True)

    assert_workflow_state(notification, "finished")
    assert (told(mailer), told(sms)) == (["sale!"], ["sale!"])


def test_no_mail_for_somebody_who_unsubscribed(shop, user):
    notification = notify(shop, user, unsubscribed=True, sms_enabled=True)

    assert_step_executed(notification, "send_email", state="skipped")
    assert_step_executed(notification, "send_sms")
    assert mailer.outbox == []


@pytest.mark.parametrize("settings", [{"sms_enabled": False}, {"sms_enabled": True, "phone": ""}])
def test_no_text_message_where_it_is_unwanted_or_impossible(shop, user, settings):
    notification = notify(shop, user, **settings)

    assert_step_executed(notification, "send_sms", state="skipped")
    assert sms.outbox == []


def test_no_push_before_it_is_live(shop, user):
    notification = notify(shop, user)

    assert_step_executed(notification, "send_push", state="skipped")
    assert push.outbox == []


def test_a_text_message_is_given_up_after_two_reattempts(shop, user):
    sms.go_down()
    notification = notify(shop, user, sms_enabled=True)

    assert assert_step_executed(notification, "send_sms", state="failed").attempt == 3
    assert_workflow_state(notification, "finished")


def test_a_text_message_gets_through_on_a_reattempt(shop, user):
    sms.will_raise(ServiceDown("busy"))
    notification = notify(shop, user, sms_enabled=True)

    assert assert_step_executed(notification, "send_sms").attempt == 2
    assert told(sms) == ["sale!"]


def test_several_may_be_on_their_way_to_one_customer(shop, user):
    first, second = (Notification.create(user, {"text": text}) for text in ("one", "two"))
    shop.commit()
    speedrun(second)
    speedrun(first)

    assert told(mailer) == ["two", "one"]


@pytest.mark.parametrize("news", [None, {}, {"text": ""}, "sale!"])
def test_news_that_say_nothing_are_refused(shop, user, news):
    with pytest.raises(InvalidInput):
        Notification.create(user, news)

    shop.commit()
    assert Notification.count() == 0
