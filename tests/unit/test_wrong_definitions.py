"""Wrong definitions fail when the class is made, on the line that is wrong, and leave nothing behind.

The line that must be blamed ends in `# wrong`; the decorator names the class and step that the message must name,
and what it must say to do.
"""

# ruff: noqa: F811, PIE794 - names that are bound twice are what some of these definitions are about

from __future__ import annotations

import functools
import linecache
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from durable import (
    ExceptionPolicy,
    StepConfigurationError,
    Workflow,
    cancel_if,
    on_exception,
    registry,
    removed_step,
    step,
)

Define = Callable[[], object]

WRONG: list[Any] = []


def wrong(*says: str) -> Callable[[Define], Define]:
    def collect(define: Define) -> Define:
        WRONG.append(pytest.param(define, says, id=define.__name__))
        return define

    return collect


def refusal(define: Define) -> str:
    """Return the message of a refused definition, once it is clear that it blames its line and leaves nothing."""
    before = registry.loaded()
    with pytest.raises(StepConfigurationError) as refused:
        define()
    assert registry.loaded() == before
    blamed = [frame for frame in traceback.extract_tb(refused.tb) if frame.filename == __file__][-1]
    assert linecache.getline(__file__, blamed.lineno or 0).rstrip().endswith("# wrong")
    return str(refused.value)


@pytest.mark.parametrize(("define", "says"), WRONG)
def test_a_wrong_definition_is_refused(define, says):
    message = refusal(define)
    for part in says:
        assert part in message


class Base(Workflow):
    """What some of the wrong definitions continue."""

    @cancel_if
    def closed(self):
        return False

    @on_exception(ValueError)
    def back_off(self, error): ...

    @step
    def charge(self): ...

    @step("settle")
    def settle_the_bill(self): ...


class Other(Workflow):
    """A workflow that has nothing to do with the wrong ones."""

    @step
    def deliver(self): ...


class Numbered(Workflow):
    """A workflow whose step has the name of an anonymous one."""

    @step
    def step_1(self): ...


# --- names


@wrong("Renewal.charge", "the @step above has this name already", "give one another")
def two_steps_of_one_name():
    class Renewal(Workflow):
        @step
        def charge(self): ...

        @step
        def charge(self): ...  # wrong


@wrong("Renewal.pay", "two steps of this name")
def two_explicit_names_that_are_one():
    class Renewal(Workflow):
        @step("pay")
        def charge(self): ...

        @step(name="pay")
        def charge_again(self): ...  # wrong


@wrong("Renewal.charge", "two steps of this name")
def an_explicit_name_that_is_a_methods():
    class Renewal(Workflow):
        @step
        def charge(self): ...

        @step("charge")
        def charge_again(self): ...  # wrong


@wrong("Renewal.charge", "the @step above has this name already")
def two_steps_with_one_method_name():
    class Renewal(Workflow):
        @step("first")
        def charge(self): ...

        @step("second")
        def charge(self): ...  # wrong


@wrong("Renewal.charge", "the @step above has this name already")
def a_plain_method_that_hides_a_step():
    class Renewal(Workflow):
        @step
        def charge(self): ...

        def charge(self): ...  # wrong


@wrong("Renewal.charge", "the @step above has this name already")
def a_plain_method_that_hides_a_step_of_another_name():
    class Renewal(Workflow):
        @step("pay")
        def charge(self): ...

        def charge(self): ...  # wrong


@wrong("Renewal.charge", "the @step above has this name already")
def a_loop_variable_that_hides_a_step():
    class Renewal(Workflow):
        @step
        def charge(self): ...

        for charge in range(3):  # wrong
            charge += 1


@wrong("Renewal.closed", "the @cancel_if above has this name already")
def a_step_with_a_conditions_name():
    class Renewal(Workflow):
        @cancel_if
        def closed(self): ...

        @step
        def closed(self): ...  # wrong


@wrong("Renewal.charge", "the @step above has this name already")
def a_condition_with_a_steps_name():
    class Renewal(Workflow):
        @step
        def charge(self): ...

        @cancel_if
        def charge(self): ...  # wrong


@wrong("Renewal.closed", "the @cancel_if above has this name already")
def two_conditions_of_one_name():
    class Renewal(Workflow):
        @cancel_if
        def closed(self): ...

        @cancel_if
        def closed(self): ...  # wrong


@wrong("Renewal.back_off", "the @on_exception above has this name already")
def two_handlers_of_one_name():
    class Renewal(Workflow):
        @on_exception(ValueError)
        def back_off(self, error): ...

        @on_exception(KeyError)
        def back_off(self, error): ...  # wrong


@wrong("Renewal.pause", "Workflow's own", "choose another")
def a_step_with_a_name_of_workflow():
    class Renewal(Workflow):
        @step
        def pause(self): ...  # wrong


@wrong("Renewal.cancel", "Workflow's own")
def an_explicit_name_of_workflow():
    class Renewal(Workflow):
        @step("cancel")
        def give_up(self): ...  # wrong


@wrong("Renewal.after_execution", "Workflow's own")
def an_explicit_name_of_a_hook():
    class Renewal(Workflow):
        @step("after_execution")
        def tidy_up(self): ...  # wrong


@wrong("Renewal.pause", "Workflow's own")
def a_loop_variable_with_a_name_of_workflow():
    class Renewal(Workflow):
        for pause in ["30s", "5m"]:  # wrong

            @step(wait=pause)
            def _(self): ...


@wrong("Renewal.hero", "Workflow's own")
def a_helper_with_a_name_of_workflow():
    class Renewal(Workflow):
        @property
        def hero(self): ...  # wrong


@wrong("Renewal.data", "Workflow's own")
def an_attribute_with_a_name_of_workflow():
    class Renewal(Workflow):
        data = {}  # wrong


@wrong("Renewal._row", "Workflow's own")
def an_attribute_with_a_private_name_of_workflow():
    class Renewal(Workflow):
        _row = None  # wrong


@wrong("Renewal.hero_classes", "Workflow's own")
def a_step_with_a_name_of_the_class_of_workflow_classes():
    class Renewal(Workflow):
        @step
        def hero_classes(self): ...  # wrong


@wrong("Renewal.before_execution", "Workflow's own")
def a_step_with_the_name_of_a_hook():
    class Renewal(Workflow):
        @step
        def before_execution(self): ...  # wrong


@wrong("Renewal.policies", "Workflow's own")
def a_step_called_policies():
    class Renewal(Workflow):
        @step
        def policies(self): ...  # wrong


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", "x" * 201, "nul\x00"])
def test_a_step_has_a_printable_name_of_moderate_length(name):
    def define():
        class Renewal(Workflow):
            @step(name)
            def charge(self): ...  # wrong

    message = refusal(define)
    assert message.startswith("Renewal.charge: ")
    assert "1 to 200 printable characters" in message


@wrong("Renewal.step_1", "an anonymous step gets this name", "give that one another")
def an_anonymous_step_that_meets_a_named_one():
    class Renewal(Workflow):
        @step
        def step_1(self): ...

        @step
        def _(self): ...  # wrong


@wrong("Renewal.step_1", "two steps of this name")
def a_named_step_that_meets_an_anonymous_one():
    class Renewal(Workflow):
        @step
        def _(self): ...

        @step
        def step_1(self): ...  # wrong


@wrong("Renewal.step_1", "an anonymous step gets this name")
def an_anonymous_step_that_meets_a_named_one_of_the_base():
    class Renewal(Numbered):
        @step
        def _(self): ...  # wrong


# --- places


@wrong("Renewal.check", "before_step names 'charge'", "(there are: remind)")
def an_unknown_step_to_come_before():
    class Renewal(Workflow):
        @step
        def remind(self): ...

        @step(before_step="charge")
        def check(self): ...  # wrong


@wrong("Renewal.check", "after_step names 'charge'", "(there are: none yet)")
def a_step_to_come_after_that_is_defined_later():
    class Renewal(Workflow):
        @step(after_step="charge")
        def check(self): ...  # wrong

        @step
        def charge(self): ...


@wrong("Renewal.check", "before_step names 'check'", "not a step defined before it")
def a_step_before_itself():
    class Renewal(Workflow):
        @step(before_step="check")
        def check(self): ...  # wrong


@wrong("Renewal.check", "both before_step and after_step", "keep one of them")
def a_step_both_before_and_after():
    class Renewal(Workflow):
        @step
        def charge(self): ...

        @step(before_step=charge, after_step="charge")
        def check(self): ...  # wrong


@wrong("Renewal.check", "before_step names 'helper'", "not a step")
def a_plain_method_to_come_before():
    class Renewal(Workflow):
        def helper(self): ...

        @step(before_step=helper)
        def check(self): ...  # wrong


@wrong("Renewal.check", "after_step names 'deliver'", "not a step")
def a_step_of_another_workflow_to_come_after():
    class Renewal(Base):
        @step(after_step=Other.deliver)
        def check(self): ...  # wrong


@wrong("Renewal.check", "before_step=3 must be a step of this class or its name")
def a_number_to_come_before():
    class Renewal(Workflow):
        @step(before_step=3)
        def check(self): ...  # wrong


@wrong("Renewal.check", "must be a step of this class or its name")
def a_gravestone_itself_to_come_before():
    class Renewal(Workflow):
        send_fax = removed_step()

        @step(before_step=send_fax)
        def check(self): ...  # wrong


# --- options of a step


@pytest.mark.parametrize(
    "wait",
    [-1, timedelta(seconds=-1), "-5m", "soon", "", "1h-30m", "10", float("nan"), float("inf"), True, [], "2000y"],
    ids=repr,
)
def test_a_wait_is_a_duration_that_is_not_negative(wait):
    def define():
        class Renewal(Workflow):
            @step(wait=wait)
            def charge(self): ...  # wrong

    message = refusal(define)
    assert message.startswith("Renewal.charge: wait: ")
    assert "use a timedelta, a number of seconds, or text" in message


@wrong("Renewal.charge", "not on datetime.timedelta(days=3)", "options by keyword")
def a_wait_without_its_keyword():
    class Renewal(Workflow):
        @step(timedelta(days=3))
        def charge(self): ...  # wrong


@wrong("Renewal.charge", "skip_if=3 must be a function of self, the name of a method, or a boolean")
def a_number_as_skip_if():
    class Renewal(Workflow):
        @step(skip_if=3)
        def charge(self): ...  # wrong


@wrong("Renewal.charge", "skip_if='prepaid' names no method of the class", "define it")
def a_skip_if_that_names_nothing():
    class Renewal(Workflow):  # wrong
        @step(skip_if="prepaid")
        def charge(self): ...


@wrong("Renewal.charge", "skip_if is called with self and nothing else", "change its parameters")
def a_skip_if_without_self():
    class Renewal(Workflow):
        @step(skip_if=lambda: True)
        def charge(self): ...  # wrong


@wrong("Renewal.charge", "skip_if is called with self and nothing else")
def a_skip_if_of_two():
    class Renewal(Workflow):
        @step(skip_if=lambda self, hero: True)
        def charge(self): ...  # wrong


@wrong("Renewal.charge", "skip_if cannot yield")
def a_skip_if_that_yields():
    class Renewal(Workflow):
        def maybe(self):
            yield True

        @step(skip_if=maybe)
        def charge(self): ...  # wrong


@wrong("Renewal.charge", "action='explode' is unknown", "use one of pause, cancel, reattempt")
def an_unknown_action():
    class Renewal(Workflow):
        @step(on_exception="explode")
        def charge(self): ...  # wrong


@wrong("Renewal.charge", 'max_reattempts without on_exception="reattempt"')
def max_reattempts_of_nothing():
    class Renewal(Workflow):
        @step(max_reattempts=3)
        def charge(self): ...  # wrong


@wrong("Renewal.charge", 'terminal_action without on_exception="reattempt"')
def a_terminal_action_of_nothing():
    class Renewal(Workflow):
        @step(terminal_action="cancel")
        def charge(self): ...  # wrong


@wrong("Renewal.charge", 'max_reattempts and terminal_action without on_exception="reattempt"')
def limits_beside_a_policy():
    class Renewal(Workflow):
        @step(on_exception=ExceptionPolicy("reattempt"), max_reattempts=3, terminal_action="cancel")
        def charge(self): ...  # wrong


@wrong("Renewal.charge", "max_reattempts= means nothing with the action 'skip'", 'goes with "reattempt" only')
def max_reattempts_of_an_action_that_does_not_reattempt():
    class Renewal(Workflow):
        @step(on_exception="skip", max_reattempts=None)
        def charge(self): ...  # wrong


@wrong("Renewal.charge", "terminal_action= means nothing with the action 'fail'")
def a_terminal_action_of_an_action_that_does_not_reattempt():
    class Renewal(Workflow):
        @step(on_exception="fail", terminal_action="cancel")
        def charge(self): ...  # wrong


@pytest.mark.parametrize("count", [-1, True, 2.0, "3"])
def test_max_reattempts_is_a_count(count):
    def define():
        class Renewal(Workflow):
            @step(on_exception="reattempt", max_reattempts=count)
            def charge(self): ...  # wrong

    assert refusal(define) == (
        f"Renewal.charge: max_reattempts={count!r} is not a count: give a whole number from 0, or None for no limit"
    )


@pytest.mark.parametrize("last", ["reattempt", "explode", ""])
def test_a_terminal_action_ends_the_reattempts(last):
    def define():
        class Renewal(Workflow):
            @step(on_exception="reattempt", terminal_action=last)
            def charge(self): ...  # wrong

    message = refusal(define)
    assert message.startswith(f"Renewal.charge: terminal_action={last!r} is unknown")
    assert "use one of pause, cancel, skip, fail" in message


@wrong("Renewal.charge", "on_exception holds 'pause'", "not an ExceptionPolicy")
def an_action_among_the_policies_of_a_step():
    class Renewal(Workflow):
        @step(on_exception=[ExceptionPolicy("skip", matching=KeyError), "pause"])
        def charge(self): ...  # wrong


@wrong("Renewal.charge", "on_exception=[] says nothing", "leave it out")
def no_policies_at_all():
    class Renewal(Workflow):
        @step(on_exception=[])
        def charge(self): ...  # wrong


@wrong("Renewal.charge", "must be an action, an ExceptionPolicy(...) or a list of them")
def an_exception_as_on_exception():
    class Renewal(Workflow):
        @step(on_exception=ValueError)
        def charge(self): ...  # wrong


# --- the functions


@wrong("Renewal.charge", "a step is called with self and nothing else", "change its parameters")
def a_step_with_a_parameter():
    class Renewal(Workflow):
        @step
        def charge(self, amount): ...  # wrong


@wrong("Renewal.charge", "a step is called with self and nothing else")
def a_step_with_a_keyword():
    class Renewal(Workflow):
        @step
        def charge(self, *, amount): ...  # wrong


@wrong("Renewal.charge", "a step is called with self and nothing else")
def a_step_without_self():
    class Renewal(Workflow):
        @step
        def charge(): ...  # wrong


@wrong("Renewal.charge", "a step cannot yield", "return a value")
def a_step_that_yields():
    class Renewal(Workflow):
        @step
        def charge(self):  # wrong
            yield 1


@wrong("Renewal.charge", "a step cannot yield")
def an_async_step_that_yields():
    class Renewal(Workflow):
        @step
        async def charge(self):  # wrong
            yield 1


@wrong("Renewal.charge", "@step goes on a plain function", "staticmethod")
def a_step_over_a_staticmethod():
    class Renewal(Workflow):
        @step
        @staticmethod
        def charge(): ...  # wrong


@pytest.mark.parametrize("wrapper", [staticmethod, classmethod, property, functools.cached_property, functools.cache])
def test_no_other_decorator_may_hide_a_step(wrapper):
    def define():
        class Renewal(Workflow):
            @wrapper
            @step
            def charge(self): ...  # wrong

    message = refusal(define)
    assert message.startswith("Renewal.charge: @step is hidden by a ")
    assert "it goes on a plain function" in message


@wrong("Renewal.Charge", "@step goes on a plain function")
def a_step_that_is_a_class():
    class Renewal(Workflow):
        @step
        class Charge: ...  # wrong


@wrong("Renewal.charge", "step(...) was not given a function", "write it as a decorator")
def a_decorator_without_its_function():
    class Renewal(Workflow):
        charge = step(wait="3d")  # wrong


@wrong("Renewal.back_off", "on_exception(...) was not given a function")
def a_handler_without_its_function():
    class Renewal(Workflow):
        back_off = on_exception(ValueError)  # wrong


@wrong("Renewal.charge", "declared twice", "one of @step, @cancel_if, @on_exception")
def a_step_that_is_declared_twice():
    class Renewal(Workflow):
        @step
        @step(wait="3d")
        def charge(self): ...  # wrong


@wrong("Renewal.charge", "declared twice")
def a_step_that_is_a_condition():
    class Renewal(Workflow):
        @cancel_if
        @step
        def charge(self): ...  # wrong


@wrong("Renewal.closed", "a condition is called with self and nothing else")
def a_condition_with_a_parameter():
    class Renewal(Workflow):
        @cancel_if
        def closed(self, hero): ...  # wrong


@wrong("Renewal.closed", "a condition cannot yield")
def a_condition_that_yields():
    class Renewal(Workflow):
        @cancel_if
        def closed(self):  # wrong
            yield False


@wrong("Renewal.closed", "@cancel_if goes on a plain function")
def a_condition_that_is_a_property():
    class Renewal(Workflow):
        @cancel_if
        @property
        def closed(self): ...  # wrong


# --- handlers and policies


@wrong("Renewal.back_off", "a handler is called with self and the exception and nothing else")
def a_handler_that_takes_no_exception():
    class Renewal(Workflow):
        @on_exception(ValueError)
        def back_off(self): ...  # wrong


@wrong("Renewal.back_off", "a handler is called with self and the exception and nothing else")
def a_handler_that_takes_more():
    class Renewal(Workflow):
        @on_exception
        def back_off(self, error, attempt): ...  # wrong


@pytest.mark.parametrize("option", ["wait", "max_reattempts", "terminal_action"])
def test_a_handler_takes_no_limits(option):
    def define():
        class Renewal(Workflow):
            @on_exception(ValueError, **{option: 3})
            def back_off(self, error): ...  # wrong

    assert refusal(define) == (
        f"Renewal.back_off: @on_exception takes no {option}: the handler decides by flow control"
    )


@wrong("Renewal.back_off", "report='sometimes' must be always, never or terminal_only")
def a_handler_with_an_unknown_report():
    class Renewal(Workflow):
        @on_exception(ValueError, report="sometimes")
        def back_off(self, error): ...  # wrong


@pytest.mark.parametrize(
    "matching", [int, KeyboardInterrupt, "Timeout", "requests. Timeout", "requests.", ""], ids=repr
)
def test_a_handler_is_for_exceptions(matching):
    def define():
        class Renewal(Workflow):
            @on_exception(matching)
            def back_off(self, error): ...  # wrong

    message = refusal(define)
    assert message.startswith(f"Renewal.back_off: matching={matching!r} is not an exception class")
    assert "give a subclass of Exception, or its dotted name" in message


@wrong("Renewal.back_off", "@on_exception goes on a plain function", "not on [<class 'ValueError'>]")
def a_handler_for_a_list():
    class Renewal(Workflow):
        @on_exception([ValueError])
        def back_off(self, error): ...  # wrong


@wrong("Renewal:", "policies=ExceptionPolicy(", "must be a list of ExceptionPolicy(...)")
def policies_that_are_one_policy():
    class Renewal(Workflow):
        policies = ExceptionPolicy("skip")  # wrong


@wrong("Renewal:", "policies holds 'reattempt'", "not an ExceptionPolicy(...)")
def an_action_among_the_policies():
    class Renewal(Workflow):
        policies = ["reattempt"]  # wrong


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("explode",), "action='explode' is unknown to ExceptionPolicy: use one of"),
        ((None,), "action=None is unknown to ExceptionPolicy: use one of"),
        (("pause", {"wait": "5s"}), "wait= means nothing with the action 'pause'"),
        (("cancel", {"max_reattempts": 3}), "max_reattempts= means nothing with the action 'cancel'"),
        (("skip", {"terminal_action": "fail"}), "terminal_action= means nothing with the action 'skip'"),
        (("reattempt", {"wait": "-5s"}), "ExceptionPolicy(wait=...): the duration '-5s' is negative"),
        (("reattempt", {"wait": lambda state: 1.0}), "or a tenacity wait strategy"),
        (("reattempt", {"max_reattempts": -1}), "max_reattempts=-1 is not a count"),
        (("reattempt", {"terminal_action": "reattempt"}), "terminal_action='reattempt' is unknown"),
        (("reattempt", {"report": "sometimes"}), "report='sometimes' is unknown to ExceptionPolicy: use one of"),
        (("pause", {"matching": []}), "matching=[] matches nothing: name an exception class, or leave matching out"),
        (("pause", {"matching": ValueError()}), "matching=ValueError() is not an exception class"),
        (("pause", {"matching": 5}), "matching=5 is not an exception class"),
        (("pause", {"matching": [ValueError, BaseException]}), "matching=<class 'BaseException'> is not an exception"),
        (("pause", {"matching": ["Timeout"]}), "matching='Timeout' is not an exception class"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_wrong_policy_is_refused_where_it_is_written(arguments, says):
    def define():
        class Renewal(Workflow):
            @step
            def charge(self): ...

            policies = [ExceptionPolicy(arguments[0], **dict(*arguments[1:]))]  # wrong

    assert says in refusal(define)


# --- gravestones


@wrong("Renewal.charge", "the @step above has this name already")
def a_gravestone_on_a_step_of_the_same_class():
    class Renewal(Workflow):
        @step
        def charge(self): ...

        charge = removed_step()  # wrong


@wrong("Renewal.send_fax", "the @step above has this name already")
def two_gravestones_of_one_name():
    class Renewal(Workflow):
        send_fax = removed_step()
        send_fax = removed_step()  # wrong


@wrong("Renewal._", "a gravestone has the name of the step it is for", "write that name")
def a_gravestone_without_a_name():
    class Renewal(Workflow):
        _ = removed_step()  # wrong


@wrong("Renewal.pause", "Workflow's own")
def a_gravestone_with_a_name_of_workflow():
    class Renewal(Workflow):
        pause = removed_step()  # wrong


@wrong("Renewal.charge", "it is declared with @step and then deleted")
def a_step_that_is_deleted():
    class Renewal(Workflow):  # wrong
        @step
        def charge(self): ...

        del charge


@wrong("Renewal.closed", "it is declared with @cancel_if and then deleted")
def a_condition_that_is_deleted():
    class Renewal(Workflow):  # wrong
        @cancel_if
        def closed(self): ...

        del closed


# --- inheritance


@wrong("Renewal.charge", "it is a step of the base class and cannot become None")
def a_step_of_the_base_that_becomes_a_value():
    class Renewal(Base):
        charge = None  # wrong


@wrong("Renewal.charge", "a step is called with self and nothing else")
def an_overridden_step_with_a_parameter():
    class Renewal(Base):
        def charge(self, amount): ...  # wrong


@wrong("Renewal.charge", "a step cannot yield")
def an_overridden_step_that_yields():
    class Renewal(Base):
        def charge(self):  # wrong
            yield 1


@wrong("Renewal.charge", "it is a step of the base class", "choose another name")
def a_step_of_the_base_that_becomes_a_condition():
    class Renewal(Base):
        @cancel_if
        def charge(self): ...  # wrong


@wrong("Renewal.closed", "it is a condition of the base class")
def a_condition_of_the_base_that_becomes_a_step():
    class Renewal(Base):
        @step
        def closed(self): ...  # wrong


@wrong("Renewal.closed", "it is a condition of the base class")
def a_condition_of_the_base_that_becomes_a_gravestone():
    class Renewal(Base):
        closed = removed_step()  # wrong


@wrong("Renewal.closed", "a condition is called with self and nothing else")
def an_overridden_condition_with_a_parameter():
    class Renewal(Base):
        def closed(self, hero): ...  # wrong


@wrong("Renewal.back_off", "it is a handler of the base class")
def a_handler_of_the_base_that_becomes_a_step():
    class Renewal(Base):
        @step
        def back_off(self): ...  # wrong


@wrong("Renewal.back_off", "a handler is called with self and the exception and nothing else")
def an_overridden_handler_that_takes_no_exception():
    class Renewal(Base):
        def back_off(self): ...  # wrong


@wrong("Renewal.back_off", "it is a handler of the base class and cannot become None")
def a_handler_of_the_base_that_becomes_nothing():
    class Renewal(Base):
        back_off = None  # wrong


@wrong("Renewal.settle_the_bill", "the method 'settle_the_bill' is the step 'settle' of the base class")
def a_second_step_of_the_method_of_a_base():
    class Renewal(Base):
        @step
        def settle_the_bill(self): ...  # wrong


@wrong("Renewal.settle_the_bill", "the method 'settle_the_bill' is the step 'settle' of the base class")
def a_gravestone_with_the_name_of_a_method():
    class Renewal(Base):
        settle_the_bill = removed_step()  # wrong


@wrong("Renewal:", "it continues Base and Other", "only one base may have steps", "choose one")
def two_bases_with_steps():
    class Renewal(Base, Other):  # wrong
        pass


@wrong("Renewal:", "Reminders.remind is declared with @step", "a Workflow")
def a_step_in_a_class_that_is_no_workflow():
    class Reminders:
        @step
        def remind(self): ...

    class Renewal(Reminders, Workflow):  # wrong
        pass


@wrong("Renewal:", "Talkative.logger has a name that is Workflow's own", "choose another")
def a_mixin_that_hides_what_workflow_has():
    class Talkative:
        logger = None

    class Renewal(Talkative, Workflow):  # wrong
        pass


# --- the class


@pytest.mark.parametrize(
    ("keyword", "value", "says"),
    [
        ("prioriti", 1, "unknown class keyword 'prioriti': use one of name, version, queue, priority"),
        ("name", "", "text of 1 to 200 printable characters"),
        ("name", "two\nlines", "text of 1 to 200 printable characters"),
        ("name", "x" * 201, "text of 1 to 200 printable characters"),
        ("name", 7, "text of 1 to 200 printable characters"),
        ("version", 0, "a whole number from 1"),
        ("version", True, "a whole number from 1"),
        ("version", "2", "a whole number from 1"),
        ("version", 2**31, "a whole number from 1 to 2147483647"),
        ("queue", "", "a name that Dramatiq takes"),
        ("queue", "two words", "a name that Dramatiq takes"),
        ("queue", "1st", "a name that Dramatiq takes"),
        ("queue", "büro", "a name that Dramatiq takes"),
        ("queue", "billing.DQ", "a name that Dramatiq takes"),
        ("queue", "x" * 101, "a name that Dramatiq takes"),
        ("queue", None, "a name that Dramatiq takes"),
        ("priority", "high", "a whole number from -32768 to 32767"),
        ("priority", True, "a whole number from -32768 to 32767"),
        ("priority", 32768, "a whole number from -32768 to 32767"),
        ("priority", -32769, "a whole number from -32768 to 32767"),
        ("may_proceed_without_hero", "yes", "True or False"),
        ("unique", "class", '"hero", "none" or a function of hero and input'),
        ("unique", None, '"hero", "none" or a function of hero and input'),
        ("unique", lambda hero: "key", '"hero", "none" or a function of hero and input'),
        ("unique_in", "ready", "a list of states: ready, performing"),
        ("unique_in", [], "a list of states: ready, performing"),
        ("unique_in", ["redy"], "a list of states: ready, performing"),
    ],
)
def test_a_wrong_class_keyword_is_refused(keyword, value, says):
    def define():
        class Renewal(Workflow, **{keyword: value}):  # wrong
            @step
            def charge(self): ...

    message = refusal(define)
    assert "Renewal: " in message
    assert keyword in message
    assert says in message


@wrong(
    "Renewal",
    "the name 'First of the wrong ones' with version 7 is",
    "First's: give one of them another name= or version=",
)
def a_name_and_version_that_are_taken():
    class Renewal(Workflow, name="First of the wrong ones", version=7):  # wrong
        pass


class First(Workflow, name="First of the wrong ones", version=7):
    """It holds the name that another one claims."""


@wrong("Renewal:", "write a workflow as a class statement")
def a_class_without_a_class_statement():
    type("Renewal", (Workflow,), {})  # wrong


# --- what is left


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, NameError])
def test_a_class_body_that_raises_midway_leaves_nothing_registered(error):
    before = registry.loaded()

    def define():
        class Renewal(Workflow, name="half written"):
            @step
            def charge(self): ...

            raise error

    with pytest.raises(error):
        define()
    assert registry.loaded() == before


def test_a_wrong_class_does_not_stand_in_the_way_of_the_right_one():
    def define(wait):
        class Renewal(Workflow, name="mended"):
            @step(wait=wait)
            def charge(self): ...  # wrong

            @step
            def _(self): ...

        return Renewal

    refusal(lambda: define("soon"))
    mended = define("5m")

    assert registry.resolve("mended", 1) is mended
    assert mended.definition.names == ("charge", "step_1")


def test_a_wrong_subclass_does_not_change_its_base():
    before = Base.definition

    def define():
        class Renewal(Base):
            @step(before_step="charge")
            def check(self): ...

            @cancel_if
            def expired(self): ...

            def charge(self): ...

            @step(wait="soon")
            def remind(self): ...  # wrong

    refusal(define)

    assert Base.definition is before
    assert Base.definition.names == ("charge", "settle")
