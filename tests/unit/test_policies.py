"""What an exception leads to: which policy is asked, and what it decides."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from json.decoder import JSONDecodeError
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tenacity import (
    wait_chain,
    wait_exception,
    wait_exponential,
    wait_exponential_jitter,
    wait_fixed,
    wait_random,
    wait_random_exponential,
)
from tenacity.wait import wait_base

from durable import ExceptionPolicy, NonRetryable, Workflow, on_exception, step
from durable.policies import DEFAULT, Decision, Handler, decide, resolve


class RateLimited(Exception):
    class Harder(Exception):
        """An exception inside another."""


class RateLimitedForLong(RateLimited):
    """A subclass."""


class CardExpired(NonRetryable):
    """What no reattempt can mend."""


def rule_for(error, workflow_class, step_name="charge"):
    return resolve(error, workflow_class.definition.find(step_name).policies, workflow_class.definition.rules)


def answer(error, workflow_class):
    """The action, or the handler's name, that an exception in the step `charge` leads to."""
    policy = rule_for(error, workflow_class).policy
    return policy.name if isinstance(policy, Handler) else policy.action


def decision(policy, error=None, *, cap=100, reattempts=0):
    return decide(policy, cap, error or ValueError(), reattempts=reattempts)


# --- the order of resolution


def test_1_a_single_policy_on_the_step_applies_unconditionally():
    class Renewal(Workflow):
        policies = [ExceptionPolicy("cancel", matching=KeyError)]

        @step(on_exception=ExceptionPolicy("skip", matching=ValueError))
        def charge(self): ...

    assert answer(ValueError(), Renewal) == "skip"
    assert answer(KeyError(), Renewal) == "skip"


def test_1_an_action_on_the_step_applies_unconditionally():
    class Renewal(Workflow):
        policies = [ExceptionPolicy("cancel", matching=KeyError)]

        @step(on_exception="reattempt", max_reattempts=2, terminal_action="fail")
        def charge(self): ...

    rule = rule_for(KeyError(), Renewal)
    assert (rule.policy.action, rule.policy.terminal_action, rule.cap) == ("reattempt", "fail", 2)


def test_2_of_a_list_on_the_step_the_first_that_matches_applies_before_its_first_blanket_one():
    class Renewal(Workflow):
        policies = [ExceptionPolicy("pause", matching=Exception)]

        @step(
            on_exception=[
                ExceptionPolicy("fail"),
                ExceptionPolicy("skip", matching=KeyError),
                ExceptionPolicy("cancel", matching=LookupError),
                ExceptionPolicy("pause"),
            ]
        )
        def charge(self): ...

    assert answer(KeyError(), Renewal) == "skip"
    assert answer(IndexError(), Renewal) == "cancel"
    assert answer(ValueError(), Renewal) == "fail"


def test_3_what_a_steps_list_does_not_answer_goes_to_the_class():
    class Renewal(Workflow):
        policies = [ExceptionPolicy("fail", matching=ValueError), ExceptionPolicy("cancel")]

        @step(on_exception=[ExceptionPolicy("skip", matching=KeyError)])
        def charge(self): ...

    assert answer(KeyError(), Renewal) == "skip"
    assert answer(ValueError(), Renewal) == "fail"
    assert answer(OSError(), Renewal) == "cancel"


def test_3_policies_and_handlers_of_the_class_that_match_are_asked_in_the_order_in_which_they_are_written():
    class Renewal(Workflow):
        policies = [ExceptionPolicy("skip", matching=KeyError), ExceptionPolicy("cancel")]

        @on_exception(KeyError, ValueError)
        def look_closer(self, error): ...

        @on_exception(ValueError, OSError)
        def too_late(self, error): ...

        @step
        def charge(self): ...

    assert answer(KeyError(), Renewal) == "skip"
    assert answer(ValueError(), Renewal) == "look_closer"
    assert answer(OSError(), Renewal) == "too_late"
    assert answer(TypeError(), Renewal) == "cancel"


def test_3_a_subclasss_that_match_are_asked_before_its_bases():
    class Renewal(Workflow):
        policies = [ExceptionPolicy("cancel", matching=KeyError), ExceptionPolicy("fail", matching=OSError)]

        @step
        def charge(self): ...

    class Yearly(Renewal):
        policies = [ExceptionPolicy("skip", matching=LookupError)]

    assert answer(KeyError(), Yearly) == "skip"
    assert answer(OSError(), Yearly) == "fail"
    assert answer(KeyError(), Renewal) == "cancel"


def test_3_one_that_matches_in_the_base_goes_before_a_blanket_one_of_the_subclass():
    class Renewal(Workflow):
        policies = [ExceptionPolicy("cancel", matching=KeyError)]

        @step
        def charge(self): ...

    class Yearly(Renewal):
        policies = [ExceptionPolicy("skip")]

    assert answer(KeyError(), Yearly) == "cancel"


def test_4_then_the_first_blanket_one_of_the_class_applies_a_subclasss_before_its_bases():
    class Renewal(Workflow):
        policies = [ExceptionPolicy("cancel"), ExceptionPolicy("fail")]

        @step
        def charge(self): ...

    class Yearly(Renewal):
        @on_exception
        def decide(self, error): ...

    assert answer(ValueError(), Renewal) == "cancel"
    assert answer(ValueError(), Yearly) == "decide"


def test_5_where_nobody_says_anything_the_workflow_pauses():
    class Renewal(Workflow):
        policies = [ExceptionPolicy("fail", matching=KeyError)]

        @step
        def charge(self): ...

    assert answer(ValueError(), Renewal) == "pause"
    assert rule_for(ValueError(), Renewal) is DEFAULT


# --- caps


def test_the_smallest_of_a_list_caps_all_of_it():
    class Renewal(Workflow):
        @step(
            on_exception=[
                ExceptionPolicy("reattempt", matching=KeyError, max_reattempts=7, terminal_action="skip"),
                ExceptionPolicy("reattempt", matching=ValueError, max_reattempts=2, terminal_action="fail"),
                ExceptionPolicy("reattempt", max_reattempts=None, terminal_action="cancel"),
                ExceptionPolicy("skip", matching=OSError),
            ]
        )
        def charge(self): ...

    for error, last in [(KeyError(), "skip"), (ValueError(), "fail"), (TypeError(), "cancel")]:
        rule = rule_for(error, Renewal)
        assert decide(rule.policy, rule.cap, error, reattempts=1).action == "reattempt"
        assert decide(rule.policy, rule.cap, error, reattempts=2) == Decision(last, exhausted=True)


def test_the_lists_of_a_class_and_of_its_base_have_caps_of_their_own():
    class Renewal(Workflow):
        policies = [ExceptionPolicy("reattempt", max_reattempts=1)]

        @step
        def charge(self): ...

    class Yearly(Renewal):
        policies = [ExceptionPolicy("reattempt", matching=KeyError, max_reattempts=9)]

    assert rule_for(KeyError(), Yearly).cap == 9
    assert rule_for(ValueError(), Yearly).cap == 1


@pytest.mark.parametrize("reattempts", [0, 99])
def test_a_policy_reattempts_a_hundred_times_unless_told_otherwise(reattempts):
    policy = ExceptionPolicy("reattempt")

    assert policy.max_reattempts == 100
    assert decision(policy, reattempts=reattempts).action == "reattempt"
    assert decision(policy, reattempts=100) == Decision("pause", exhausted=True)


def test_no_limit_is_no_limit():
    class Renewal(Workflow):
        @step(on_exception="reattempt", max_reattempts=None)
        def charge(self): ...

    rule = rule_for(ValueError(), Renewal)
    assert rule.cap is None
    assert decide(rule.policy, rule.cap, ValueError(), reattempts=10**9).action == "reattempt"


def test_no_reattempts_go_straight_to_the_terminal_action():
    class Renewal(Workflow):
        @step(on_exception="reattempt", max_reattempts=0, terminal_action="skip")
        def charge(self): ...

    rule = rule_for(ValueError(), Renewal)
    assert decide(rule.policy, rule.cap, ValueError(), reattempts=0) == Decision("skip", exhausted=True)


# --- deciding


@pytest.mark.parametrize("action", ["pause", "cancel", "skip", "fail"])
@pytest.mark.parametrize("error", [ValueError(), CardExpired()], ids=["any error", "not to be retried"])
@pytest.mark.parametrize("reattempts", [0, 1000])
def test_an_action_that_does_not_reattempt_is_done_at_once(action, error, reattempts):
    assert decision(ExceptionPolicy(action), error, reattempts=reattempts) == Decision(action)


@pytest.mark.parametrize("last", ["pause", "cancel", "skip", "fail"])
def test_reattempting_ends_in_the_terminal_action(last):
    policy = ExceptionPolicy("reattempt", wait="5s", terminal_action=last)

    assert decision(policy, cap=3, reattempts=2) == Decision("reattempt", wait=timedelta(seconds=5))
    assert decision(policy, cap=3, reattempts=3) == Decision(last, exhausted=True)
    assert decision(policy, cap=3, reattempts=4) == Decision(last, exhausted=True)


@pytest.mark.parametrize("error", [NonRetryable(), CardExpired()], ids=repr)
@pytest.mark.parametrize("last", ["pause", "cancel", "skip", "fail"])
def test_what_is_not_to_be_retried_goes_straight_to_the_terminal_action(error, last):
    policy = ExceptionPolicy("reattempt", max_reattempts=None, terminal_action=last)

    assert decision(policy, error, cap=None) == Decision(last, exhausted=True)


# --- matching


@pytest.mark.parametrize(
    "matching",
    [
        RateLimited,
        Exception,
        f"{__name__}.RateLimited",
        "builtins.Exception",
        [ValueError, RateLimited],
        (f"{__name__}.RateLimited", KeyError),
        ["never.imported", "builtins.Exception"],
    ],
    ids=str,
)
@pytest.mark.parametrize("error", [RateLimited(), RateLimitedForLong()], ids=repr)
def test_a_policy_matches_by_class_base_class_or_dotted_name(matching, error):
    assert ExceptionPolicy("skip", matching=matching).matches(error)


@pytest.mark.parametrize(
    "matching",
    [RateLimitedForLong, KeyError, f"{__name__}.RateLimitedForLong", "other.RateLimited", [ValueError, "a.B"]],
    ids=str,
)
def test_a_policy_does_not_match_what_it_does_not_name(matching):
    assert not ExceptionPolicy("skip", matching=matching).matches(RateLimited())


def test_a_dotted_name_may_be_the_one_of_the_defining_module_or_of_one_that_exports_it():
    with pytest.raises(JSONDecodeError) as raised:
        json.loads("{")

    assert ExceptionPolicy("skip", matching="json.decoder.JSONDecodeError").matches(raised.value)
    assert ExceptionPolicy("skip", matching="json.JSONDecodeError").matches(raised.value)


def test_a_dotted_name_may_be_that_of_a_class_inside_another_or_inside_a_function():
    class Local(Exception):
        pass

    assert ExceptionPolicy("skip", matching=f"{__name__}.RateLimited.Harder").matches(RateLimited.Harder())
    assert ExceptionPolicy("skip", matching=f"{__name__}.{Local.__qualname__}").matches(Local())


def test_a_dotted_name_is_never_imported(tmp_path, monkeypatch):
    (tmp_path / "never_to_be_imported.py").write_text("raise AssertionError('it was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    policy = ExceptionPolicy("skip", matching="never_to_be_imported.Timeout")

    assert not policy.matches(ValueError())
    assert "never_to_be_imported" not in sys.modules


def test_a_module_that_cannot_make_a_name_on_demand_does_no_harm(monkeypatch):
    def broken(name):
        raise ImportError(name)

    lazy = ModuleType("lazy")
    lazy.__getattr__ = broken
    monkeypatch.setitem(sys.modules, "lazy", lazy)

    assert not ExceptionPolicy("skip", matching="lazy.Timeout").matches(ValueError())


def test_a_name_that_is_no_exception_matches_nothing():
    assert not ExceptionPolicy("skip", matching="sys.path").matches(ValueError())


def test_a_handler_matches_as_a_policy_does():
    handler = Handler("back_off", lambda self, error: None, (KeyError, "builtins.OSError"))

    assert handler.matches(KeyError())
    assert handler.matches(FileNotFoundError())
    assert not handler.matches(ValueError())
    assert not handler.blanket
    assert Handler("decide", lambda self, error: None).blanket


# --- waiting


@pytest.mark.parametrize("wait", ["90s", 90, 90.0, timedelta(seconds=90)], ids=repr)
def test_a_wait_is_a_duration(wait):
    assert decision(ExceptionPolicy("reattempt", wait=wait), reattempts=7).wait == timedelta(seconds=90)


@pytest.mark.parametrize("wait", [None, 0, "0s", wait_fixed(0)], ids=["none", "number", "text", "strategy"])
def test_without_a_wait_the_step_runs_again_at_once(wait):
    assert decision(ExceptionPolicy("reattempt", wait=wait)).wait == timedelta()


def waits(strategy, count):
    policy = ExceptionPolicy("reattempt", wait=strategy, max_reattempts=None)
    return [policy.delay(ValueError(), reattempts).total_seconds() for reattempts in range(count)]


def test_an_exponential_wait_doubles_up_to_its_maximum():
    assert waits(wait_exponential(multiplier=1, max=10), 6) == [1, 2, 4, 8, 10, 10]


def test_a_chain_of_waits_is_walked_to_its_end():
    assert waits(wait_chain(wait_fixed(1), wait_fixed(5), wait_fixed(60)), 5) == [1, 5, 60, 60, 60]


def test_waits_can_be_added():
    assert waits(wait_fixed(3) + wait_exponential(multiplier=1, max=4), 4) == [4, 5, 7, 7]


def test_a_wait_may_come_from_the_exception():
    policy = ExceptionPolicy("reattempt", wait=wait_exception(lambda error: error.args[0]))

    assert policy.delay(RateLimited(17), 0) == timedelta(seconds=17)


@given(st.integers(0, 2000))
def test_jitter_stays_within_its_bounds(reattempts):
    bounds = [
        (wait_exponential_jitter(initial=1, max=60, jitter=5), 1, 60),
        (wait_random_exponential(multiplier=1, max=30), 0, 30),
        (wait_random(min=2, max=4), 2, 4),
    ]
    for strategy, least, most in bounds:
        delay = ExceptionPolicy("reattempt", wait=strategy).delay(ValueError(), reattempts)
        assert timedelta(seconds=least) <= delay <= timedelta(seconds=most)


@given(st.integers(0, 10_000))
def test_a_wait_without_a_maximum_never_grows_out_of_the_calendar(reattempts):
    policy = ExceptionPolicy("reattempt", wait=wait_exponential(), max_reattempts=None)

    assert policy.delay(ValueError(), reattempts) <= timedelta(days=365 * 1000)


class Returning(wait_base):
    """A strategy that is wrong."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, retry_state):
        return self.seconds


@pytest.mark.parametrize("seconds", [-5, float("nan"), float("-inf")])
def test_a_strategy_that_returns_no_time_to_wait_means_none(seconds):
    assert decision(ExceptionPolicy("reattempt", wait=Returning(seconds))).wait == timedelta()


def test_a_strategy_that_returns_for_ever_means_as_long_as_it_goes():
    assert decision(ExceptionPolicy("reattempt", wait=Returning(float("inf")))).wait == timedelta(days=365_000)


# --- a policy as a value


def test_a_policy_can_be_compared_and_read_but_not_changed():
    policy = ExceptionPolicy("reattempt", matching=KeyError, wait="5s", report="terminal_only")

    assert policy == ExceptionPolicy("reattempt", matching=[KeyError], wait=5, report="terminal_only")
    assert "reattempt" in repr(policy)
    with pytest.raises(AttributeError):
        policy.action = "skip"
