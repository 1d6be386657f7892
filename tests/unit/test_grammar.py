"""What a class body declares, and what its subclasses make of it."""

from __future__ import annotations

import importlib
import inspect
import sys
from datetime import timedelta
from types import SimpleNamespace

import pytest

from durable import (
    ExceptionPolicy,
    Workflow,
    WorkflowState,
    cancel_if,
    on_exception,
    registry,
    removed_step,
    step,
)
from durable.policies import Handler
from tests.conftest import Subscription


def names(workflow_class):
    """The steps of a class in the order in which they run."""
    return list(workflow_class.definition.names)


def asked(workflow_class):
    """What is asked about an exception, in order: the names of handlers, the actions of policies."""
    policies = [rule.policy for rule in workflow_class.definition.rules]
    return [policy.name if isinstance(policy, Handler) else policy.action for policy in policies]


def conditions(workflow_class):
    return [condition.name for condition in workflow_class.definition.conditions]


class Renewal(Workflow[Subscription], queue="billing", priority=5, version=3, may_proceed_without_hero=True):
    """The base of most classes here."""

    policies = [ExceptionPolicy("reattempt", matching=TimeoutError), ExceptionPolicy("cancel")]

    @cancel_if
    def closed(self):
        return self.hero.closed

    @on_exception(KeyError)
    def look_it_up(self, error): ...

    @step
    def remind(self):
        return "reminded"

    @step(wait="3d", skip_if="prepaid", on_exception="skip")
    def charge(self):
        """Charge the card."""
        return "charged"

    @step
    def thank(self): ...

    def prepaid(self):
        return False


# --- the order of steps


def test_steps_run_in_the_order_in_which_they_are_written():
    assert names(Renewal) == ["remind", "charge", "thank"]


def test_a_class_without_steps_has_none():
    class Empty(Workflow):
        pass

    assert names(Empty) == []
    assert Empty.definition.first is None


@pytest.mark.parametrize("by_name", [False, True])
def test_a_step_may_come_immediately_before_or_after_another(by_name):
    class Ordered(Workflow):
        @step
        def a(self): ...

        @step
        def b(self): ...

        @step(before_step="b" if by_name else b)
        def before_b(self): ...

        @step(after_step="a" if by_name else a)
        def after_a(self): ...

        @step(after_step="b" if by_name else b)
        def after_b(self): ...

    assert names(Ordered) == ["a", "after_a", "before_b", "b", "after_b"]


def test_the_first_step_to_run_is_the_first_in_order_not_the_first_written():
    class Ordered(Workflow):
        @step
        def written_first(self): ...

        @step(before_step=written_first)
        def runs_first(self): ...

    assert Ordered.definition.first.name == "runs_first"
    assert Ordered.definition.after("runs_first").name == "written_first"
    assert Ordered.definition.after("written_first") is None


@pytest.mark.parametrize("reference", ["charge", Renewal.charge], ids=["name", "function"])
def test_a_subclass_may_place_a_step_beside_an_inherited_one(reference):
    class Yearly(Renewal):
        @step(before_step=reference)
        def check(self): ...

        @step(after_step=reference)
        def confirm(self): ...

    assert names(Yearly) == ["remind", "check", "charge", "confirm", "thank"]


def test_a_step_may_be_placed_beside_an_inherited_one_that_was_overridden_above():
    class Yearly(Renewal):
        def charge(self): ...

        @step(before_step=Renewal.charge)
        def check(self): ...

        @step(after_step=charge)
        def confirm(self): ...

    assert names(Yearly) == ["remind", "check", "charge", "confirm", "thank"]


def test_a_step_may_be_placed_by_its_explicit_name():
    class Ordered(Workflow):
        @step("pay the bill")
        def pay(self): ...

        @step(before_step="pay the bill")
        def check(self): ...

    assert names(Ordered) == ["check", "pay the bill"]


# --- anonymous steps


def test_anonymous_steps_in_a_loop_are_all_there_each_with_its_own_wait():
    class Polling(Workflow):
        for delay in ["30s"] * 2 + ["5m"] * 3:

            @step(wait=delay)
            def _(self):
                return "checked"

    assert names(Polling) == ["step_1", "step_2", "step_3", "step_4", "step_5"]
    assert [one.wait.total_seconds() for one in Polling.definition.steps] == [30, 30, 300, 300, 300]
    assert [one.function(None) for one in Polling.definition.steps] == ["checked"] * 5
    assert not hasattr(Polling, "_")


def test_anonymous_steps_are_numbered_among_themselves_only():
    class Polling(Workflow):
        @step
        def begin(self): ...

        @step
        def _(self): ...

        @step
        def between(self): ...

        @step
        def _(self): ...

    assert names(Polling) == ["begin", "step_1", "between", "step_2"]


def test_the_numbers_go_on_in_a_subclass():
    class Polling(Workflow):
        @step
        def _(self): ...

    class Longer(Polling):
        @step
        def _(self): ...

    class Longest(Longer):
        @step
        def _(self): ...

    assert names(Longest) == ["step_1", "step_2", "step_3"]
    assert names(Polling) == ["step_1"]


def test_an_underscore_with_a_name_is_not_counted():
    class Polling(Workflow):
        @step("begin")
        def _(self): ...

        @step
        def _(self): ...

    assert names(Polling) == ["begin", "step_1"]


def test_a_step_may_be_placed_beside_the_latest_anonymous_one():
    class Polling(Workflow):
        @step
        def _(self): ...

        @step(before_step=_)
        def begin(self): ...

        @step(after_step="step_1")
        def end(self): ...

    assert names(Polling) == ["begin", "step_1", "end"]


def test_an_underscore_is_an_ordinary_variable_of_the_class_body():
    class Polling(Workflow):
        for _ in range(2):
            doubled = 2 * _

            @step
            def _(self): ...

        for _ in range(3):
            pass
        del _

    assert names(Polling) == ["step_1", "step_2"]
    assert Polling.doubled == 2


def test_an_anonymous_step_can_be_redeclared_by_its_number():
    class Polling(Workflow):
        for delay in [10, 20]:

            @step(wait=delay)
            def _(self): ...

    class Slower(Polling):
        @step(wait=60)
        def step_1(self): ...

    assert [(one.name, one.wait.seconds) for one in Slower.definition.steps] == [("step_1", 60), ("step_2", 20)]


# --- what a decorator leaves of a method


def test_a_step_is_an_ordinary_method_that_can_be_called():
    assert Renewal.charge(None) == "charged"
    assert Renewal.closed(SimpleNamespace(hero=Subscription(closed=True))) is True


def test_a_step_keeps_its_name_docstring_signature_and_defaults():
    def charge(self, amount: int = 9, *, currency: str = "EUR") -> int:
        """Charge the card."""
        return amount

    charge.tag = "kept"
    declared = step(wait="3d")(charge)

    assert declared.__name__ == "charge"
    assert declared.__doc__ == "Charge the card."
    assert declared.__module__ == __name__
    assert declared.__qualname__ == charge.__qualname__
    assert declared.tag == "kept"
    assert inspect.signature(declared) == inspect.signature(charge)
    assert inspect.get_annotations(declared) == inspect.get_annotations(charge)
    assert declared(None) == 9


def test_a_step_of_a_base_can_be_called_with_super():
    class Yearly(Renewal):
        def charge(self):
            return f"{super().charge()} for a year"

    assert Yearly.charge(Yearly.__new__(Yearly)) == "charged for a year"


def test_an_async_step_stays_a_coroutine_function():
    class Fetching(Workflow):
        @step
        async def fetch(self): ...

    assert inspect.iscoroutinefunction(Fetching.fetch)
    assert names(Fetching) == ["fetch"]


def test_parentheses_without_options_change_nothing():
    class Plain(Workflow):
        @step
        def bare(self): ...

        @step()
        def with_parentheses(self): ...

    bare, with_parentheses = Plain.definition.steps
    assert names(Plain) == ["bare", "with_parentheses"]
    assert (bare.wait, bare.skip_if, bare.policies) == (timedelta(), False, None)
    assert (with_parentheses.wait, with_parentheses.skip_if, with_parentheses.policies) == (timedelta(), False, None)


def test_the_stored_name_of_a_step_need_not_be_its_methods():
    class Plain(Workflow):
        @step("collect money")
        def charge(self): ...

        @step(name="say thanks")
        def thank(self): ...

    assert names(Plain) == ["collect money", "say thanks"]
    assert [one.attribute for one in Plain.definition.steps] == ["charge", "thank"]


def test_one_function_may_serve_several_steps():
    def check(self):
        return "checked"

    class Polling(Workflow):
        soon = step(wait="30s")(check)
        later = step(wait="5m")(check)
        at_last = step(check)
        same = step("again", wait="1h")(check)

    assert names(Polling) == ["soon", "later", "at_last", "again"]
    assert [one.wait.seconds for one in Polling.definition.steps] == [30, 300, 0, 3600]
    assert Polling.soon(None) == Polling.same(None) == "checked"
    assert not hasattr(check, "__durable_declaration__")


def test_a_decorator_below_step_that_keeps_the_functions_looks_is_welcome():
    from functools import wraps

    def shouting(function):
        @wraps(function)
        def shout(self):
            return function(self).upper()

        return shout

    class Loud(Workflow):
        @step
        @shouting
        def greet(self):
            return "hello"

        @shouting
        @step(wait="5m")
        def part(self):
            return "bye"

    assert names(Loud) == ["greet", "part"]
    assert Loud.definition.find("part").wait == timedelta(minutes=5)
    assert [one.function(None) for one in Loud.definition.steps] == ["HELLO", "BYE"]


def test_the_class_body_is_ordinary_python():
    class Body(Workflow):
        waits = {name: 60 * index for index, name in enumerate(["first", "second"], 1)}
        for name_of_step, delay in waits.items():
            if delay > 60:
                locals()[name_of_step] = step(wait=delay)(lambda self: None)
        del name_of_step, delay

        class Inner:
            charge = "not a step"

    assert names(Body) == ["second"]
    assert Body.waits == {"first": 60, "second": 120}
    assert not hasattr(Body, "delay")


def test_skip_if_is_a_method_by_name_a_function_or_a_boolean():
    def weekend(self):
        return True

    class Plain(Workflow):
        holiday = False

        @step(skip_if="holiday")
        def by_name(self): ...

        @step(skip_if=weekend)
        def by_function(self): ...

        @step(skip_if=True)
        def by_boolean(self): ...

    assert [one.skip_if for one in Plain.definition.steps] == ["holiday", weekend, True]


def test_a_name_may_have_two_hundred_characters():
    class Plain(Workflow, name="x" * 200):
        @step("y" * 200)
        def work(self): ...

    assert names(Plain) == ["y" * 200]
    assert Plain.options.name == "x" * 200


def test_a_private_name_is_an_ordinary_name():
    class Plain(Workflow):
        @step
        def __work(self): ...

    assert names(Plain) == ["_Plain__work"]


# --- inheritance


def test_a_subclass_adds_its_steps_after_its_bases():
    class Yearly(Renewal):
        @step
        def send_gift(self): ...

    assert names(Yearly) == ["remind", "charge", "thank", "send_gift"]


def test_a_redeclared_step_keeps_its_place_and_has_new_options():
    class Yearly(Renewal):
        @step(wait="9d")
        def charge(self): ...

    charge = Yearly.definition.find("charge")
    assert names(Yearly) == names(Renewal)
    assert (charge.wait, charge.skip_if, charge.policies) == (timedelta(days=9), False, None)
    assert charge.function is Yearly.charge


def test_a_redeclared_step_can_be_moved():
    class Yearly(Renewal):
        @step(before_step="remind")
        def thank(self): ...

    assert names(Yearly) == ["thank", "remind", "charge"]


def test_an_overridden_method_keeps_the_place_and_options_of_its_step():
    class Yearly(Renewal):
        def charge(self):
            return "charged for a year"

    inherited, charge = Renewal.definition.find("charge"), Yearly.definition.find("charge")
    assert names(Yearly) == names(Renewal)
    assert (charge.wait, charge.skip_if, charge.policies) == (inherited.wait, "prepaid", inherited.policies)
    assert charge.function is Yearly.charge


def test_an_overridden_method_of_a_step_with_another_name_is_still_that_step():
    class Paying(Workflow):
        @step("pay", wait="3d")
        def charge(self): ...

    class Yearly(Paying):
        def charge(self):
            return "charged for a year"

    pay = Yearly.definition.find("pay")
    assert names(Yearly) == ["pay"]
    assert (pay.wait, pay.function) == (timedelta(days=3), Yearly.charge)


def test_the_base_is_never_changed():
    before = Renewal.definition

    class Yearly(Renewal):
        policies = [ExceptionPolicy("skip")]

        @step(before_step="remind")
        def check(self): ...

        @step
        def charge(self): ...

        def remind(self): ...

        thank = removed_step()

        @cancel_if
        def expired(self): ...

        @on_exception(KeyError)
        def look_it_up(self, error): ...

    assert Renewal.definition is before
    assert names(Renewal) == ["remind", "charge", "thank"]
    assert conditions(Renewal) == ["closed"]
    assert asked(Renewal) == ["reattempt", "cancel", "look_it_up"]
    assert Renewal.definition.find("remind").function(None) == "reminded"


def test_two_subclasses_do_not_see_each_other():
    class Yearly(Renewal):
        @step
        def send_gift(self): ...

    class Monthly(Renewal):
        @step
        def send_card(self): ...

    assert names(Yearly)[-1:] == ["send_gift"]
    assert names(Monthly)[-1:] == ["send_card"]
    assert "send_gift" not in names(Monthly)


def test_a_mixin_that_is_no_workflow_lends_its_methods():
    class Prepaid:
        def paid(self):
            return True

        def charge(self):
            return "nothing to charge"

    class Yearly(Prepaid, Renewal):
        @step(skip_if="paid")
        def send_bill(self): ...

    assert names(Yearly) == ["remind", "charge", "thank", "send_bill"]
    assert Yearly.charge(None) == "nothing to charge"


def test_a_mixin_behind_workflow_hides_nothing():
    class Talkative:
        logger = None

    class Yearly(Renewal, Talkative):
        pass

    assert Yearly.logger is Renewal.logger


def test_a_mixin_that_is_a_workflow_without_steps_lends_conditions_and_policies():
    class Careful(Workflow):
        policies = [ExceptionPolicy("fail", matching=MemoryError)]

        @cancel_if
        def frozen(self): ...

    class First(Careful, Renewal):
        pass

    class Last(Renewal, Careful):
        pass

    assert names(First) == names(Last) == names(Renewal)
    assert conditions(First) == ["frozen", "closed"]
    assert conditions(Last) == ["closed", "frozen"]
    assert asked(First) == ["fail", "reattempt", "cancel", "look_it_up"]
    assert asked(Last) == ["reattempt", "cancel", "look_it_up", "fail"]


def test_what_two_bases_have_in_common_is_inherited_once():
    class Careful(Workflow):
        policies = [ExceptionPolicy("fail")]

        @cancel_if
        def frozen(self): ...

    class Left(Careful):
        @step
        def go(self): ...

    class Right(Careful):
        pass

    class Both(Left, Right):
        pass

    assert names(Both) == ["go"]
    assert conditions(Both) == ["frozen"]
    assert asked(Both) == ["fail"]


def test_the_anonymous_conditions_of_two_bases_are_all_asked():
    class Left(Workflow):
        @cancel_if
        def _(self): ...

    class Right(Workflow):
        @cancel_if
        def _(self): ...

    class Both(Left, Right):
        pass

    assert len(conditions(Both)) == 2


def test_a_base_and_its_own_base_may_both_be_named():
    class Yearly(Renewal):
        @step
        def send_gift(self): ...

    class Both(Yearly, Renewal):
        pass

    assert names(Both) == [*names(Renewal), "send_gift"]


# --- gravestones


def test_a_gravestone_keeps_the_place_of_a_step_that_is_gone():
    class Faxless(Workflow):
        @step
        def write(self): ...

        send_fax = removed_step()

        @step
        def file(self): ...

    assert names(Faxless) == ["write", "file"]
    assert Faxless.definition.find("send_fax").removed
    assert Faxless.definition.after("send_fax").name == "file"
    assert Faxless.definition.after("write").name == "file"
    assert not hasattr(Faxless, "send_fax")


def test_a_gravestone_is_never_the_first_step():
    class Faxless(Workflow):
        send_fax = removed_step()

        @step
        def write(self): ...

        shred = removed_step()

    assert Faxless.definition.first.name == "write"
    assert Faxless.definition.after("shred") is None


def test_a_subclass_may_bury_a_step_of_its_base_and_its_subclass_may_revive_it():
    class Free(Renewal):
        charge = removed_step()

    class Paid(Free):
        @step
        def charge(self): ...

    assert names(Free) == ["remind", "thank"]
    assert Free.definition.after("charge").name == "thank"
    assert names(Paid) == ["remind", "charge", "thank"]


def test_a_step_may_be_placed_beside_a_gravestone_by_its_name():
    class Faxless(Workflow):
        @step
        def write(self): ...

        send_fax = removed_step()

        @step
        def file(self): ...

        @step(after_step="send_fax")
        def send_mail(self): ...

    assert [one.name for one in Faxless.definition.steps] == ["write", "send_fax", "send_mail", "file"]


# --- conditions, handlers and policies


def test_conditions_are_inherited_and_asked_before_the_subclasss_own():
    class Yearly(Renewal):
        @cancel_if
        def expired(self): ...

        @cancel_if
        def _(self): ...

        @cancel_if
        def _(self): ...

    assert conditions(Yearly) == ["closed", "expired", "_3", "_4"]
    assert conditions(Renewal) == ["closed"]


def test_a_redeclared_condition_keeps_its_place():
    class Yearly(Renewal):
        @cancel_if
        def expired(self): ...

        @cancel_if
        def closed(self): ...

    assert conditions(Yearly) == ["closed", "expired"]
    assert Yearly.definition.conditions[0].function is Yearly.closed


def test_a_condition_may_be_overridden_or_answered_for_good():
    class Overridden(Renewal):
        def closed(self):
            return True

    class Never(Renewal):
        closed = False

    assert conditions(Overridden) == conditions(Never) == ["closed"]


def test_policies_and_handlers_are_asked_in_the_order_in_which_they_are_written():
    class Careful(Workflow):
        @on_exception(KeyError)
        def first(self, error): ...

        policies = [ExceptionPolicy("skip", matching=ValueError), ExceptionPolicy("fail")]

        @on_exception(OSError)
        def last(self, error): ...

    assert asked(Careful) == ["first", "skip", "fail", "last"]


def test_a_subclasss_policies_and_handlers_are_asked_before_its_bases():
    class Yearly(Renewal):
        @on_exception(ValueError)
        def explain(self, error): ...

        policies = [ExceptionPolicy("skip")]

    class Decennial(Yearly):
        policies = [ExceptionPolicy("fail")]

    assert asked(Yearly) == ["explain", "skip", "reattempt", "cancel", "look_it_up"]
    assert asked(Decennial) == ["fail", *asked(Yearly)]


def test_a_redeclared_handler_takes_the_place_of_its_bases():
    class Yearly(Renewal):
        @on_exception(LookupError, report="never")
        def look_it_up(self, error): ...

    (handler,) = [rule.policy for rule in Yearly.definition.rules if isinstance(rule.policy, Handler)]
    assert asked(Yearly) == ["look_it_up", "reattempt", "cancel"]
    assert (handler.matching, handler.report, handler.call) == ((LookupError,), "never", Yearly.look_it_up)


def test_an_overridden_handler_keeps_its_exceptions_and_its_place():
    class Yearly(Renewal):
        def look_it_up(self, error): ...

    assert Yearly.definition.rules == Renewal.definition.rules


def test_handlers_in_a_loop_are_all_there_in_a_subclass_too():
    class Careful(Workflow):
        for kind in (KeyError, ValueError):

            @on_exception(kind)
            def _(self, error): ...

    class MoreCareful(Careful):
        @on_exception(OSError)
        def _(self, error): ...

    matched = [rule.policy.matching for rule in MoreCareful.definition.rules]
    assert matched == [(OSError,), (KeyError,), (ValueError,)]


def test_policies_may_be_made_up_of_the_bases():
    class Yearly(Renewal):
        policies = [*Renewal.policies, ExceptionPolicy("skip")]
        policies += [ExceptionPolicy("fail")]

    assert asked(Yearly)[:4] == ["reattempt", "cancel", "skip", "fail"]
    assert len(Renewal.policies) == 2


# --- class keywords


def test_class_keywords_are_inherited_but_for_name_and_version():
    class Yearly(Renewal):
        pass

    assert Yearly.options.queue == "billing"
    assert Yearly.options.priority == 5
    assert Yearly.options.may_proceed_without_hero is True
    assert Yearly.options.version == 1
    assert Yearly.options.name == f"{__name__}.{Yearly.__qualname__}"


def test_a_subclass_may_say_otherwise():
    class Yearly(Renewal, queue="yearly", priority=-1, may_proceed_without_hero=False):
        pass

    assert (Yearly.options.queue, Yearly.options.priority) == ("yearly", -1)
    assert Yearly.options.may_proceed_without_hero is False
    assert Renewal.options.queue == "billing"


def test_class_keywords_have_defaults():
    class Plain(Workflow):
        pass

    options = Plain.options
    assert (options.version, options.queue, options.priority) == (1, "default", 0)
    assert (options.may_proceed_without_hero, options.unique, options.unique_in) == (False, "hero", None)


def test_the_states_that_occupy_the_unique_slot_may_be_named_by_text():
    def by_year(hero, given):
        return f"{hero}:{given}"

    class Plain(Workflow, unique=by_year, unique_in=["ready", WorkflowState.FAILED]):
        pass

    assert Plain.options.unique is by_year
    moves_by_itself = {"ready", "performing", "waiting", "compensating"}
    assert set(Plain.options.unique_in) == {*moves_by_itself, "failed"}


@pytest.mark.parametrize("priority", [-32768, 32767])
def test_a_priority_is_as_large_as_its_column(priority):
    class Plain(Workflow, priority=priority):
        pass

    assert Plain.options.priority == priority


def test_the_unique_key_may_come_from_a_function_without_a_signature():
    class Plain(Workflow, unique=max):
        pass

    assert Plain.options.unique is max


# --- heroes


def test_the_class_of_the_hero_is_known_and_inherited():
    class Yearly(Renewal):
        pass

    assert Renewal.hero_classes() == Yearly.hero_classes() == [Subscription]


def test_a_class_that_names_no_hero_gets_to_know_those_that_occur():
    class Plain(Workflow):
        pass

    class NotMapped(Workflow[int]):
        pass

    assert Plain.hero_classes() == NotMapped.hero_classes() == []
    Plain.know_hero(Subscription)
    Plain.know_hero(Subscription)

    assert Plain.hero_classes() == [Subscription]
    assert Workflow.hero_classes() == []


# --- the registry


def test_a_class_is_registered_by_its_module_and_qualified_name():
    class Onboarding(Workflow):
        pass

    assert Onboarding.options.name.endswith(
        "test_a_class_is_registered_by_its_module_and_qualified_name.<locals>.Onboarding"
    )
    assert registry.resolve(Onboarding.options.name, 1) is Onboarding


def test_two_classes_of_one_bare_name_do_not_disturb_each_other():
    def one():
        class Onboarding(Workflow):
            pass

        return Onboarding

    def two():
        class Onboarding(Workflow):
            pass

        return Onboarding

    first, second = one(), two()
    assert registry.resolve(first.options.name, 1) is first
    assert registry.resolve(second.options.name, 1) is second


def test_a_row_runs_on_its_own_version_if_that_is_loaded_else_on_the_newest():
    class Third(Workflow, name="versioned", version=3):
        pass

    class First(Workflow, name="versioned", version=1):
        pass

    assert registry.resolve("versioned", 1) is First
    assert registry.resolve("versioned", 3) is Third
    assert registry.resolve("versioned", 2) is Third
    assert registry.resolve("versioned", 9) is Third
    assert registry.loaded()["versioned"] == {1: First, 3: Third}


def test_a_name_that_no_class_has_is_nothing():
    assert registry.resolve("never.heard.of", 1) is None


def test_a_class_can_be_forgotten_in_all_its_versions():
    class First(Workflow, name="forgettable", version=1):
        pass

    class Second(Workflow, name="forgettable", version=2):
        pass

    assert registry.newest("forgettable") is Second
    registry.forget("forgettable")
    registry.forget("forgettable")

    assert registry.newest("forgettable") is None
    assert registry.resolve("forgettable", 1) is None
    assert "forgettable" not in registry.loaded()


def test_what_is_loaded_is_a_copy():
    registry.loaded().clear()
    registry.loaded()[Renewal.options.name].clear()

    assert registry.resolve(Renewal.options.name, 3) is Renewal


def test_a_class_that_is_defined_again_takes_the_place_of_its_former_self():
    def define(wait):
        class Onboarding(Workflow, name="defined again"):
            @step(wait=wait)
            def greet(self): ...

        return Onboarding

    define("5m")
    again = define("9m")

    assert registry.resolve("defined again", 1) is again


def test_a_module_can_be_reloaded(tmp_path, monkeypatch):
    source = tmp_path / "workflows_to_reload.py"
    written = "from durable import Workflow, step\nclass Onboarding(Workflow):\n    @step\n    def {}(self): ...\n"
    source.write_text(written.format("greet"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = importlib.import_module("workflows_to_reload")

    source.write_text(written.format("welcome"))
    importlib.reload(module)

    assert names(registry.resolve("workflows_to_reload.Onboarding", 1)) == ["welcome"]
