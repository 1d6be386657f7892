"""What is kept of an exception, however odd it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.failures import LONGEST, Failure, describe, describe_both, readable


class Unreadable(Exception):
    def __str__(self):
        raise RuntimeError("no message for you")


class Unprintable(Exception):
    def __str__(self):
        return None

    def __repr__(self):
        raise RuntimeError("no representation either")


class Untraceable(Exception):
    @property
    def __cause__(self):
        raise RuntimeError("no cause for you")


class Outer:
    class Inner(Exception):
        pass


def caught(error):
    """An exception that has been raised, as those of steps have."""
    try:
        raise error
    except type(error) as raised:
        return raised


def assert_fit(failure):
    for text in (failure.error_class, failure.message, failure.traceback, str(failure)):
        assert "\x00" not in text
        assert len(text) <= LONGEST
        text.encode()
    assert len(str(failure)) <= 500
    assert "\n" not in str(failure)


def test_an_exception_is_kept_as_class_message_and_traceback():
    failure = describe(caught(ValueError("no such card")))

    assert failure.error_class == "ValueError"
    assert failure.message == "no such card"
    assert failure.traceback.startswith("Traceback (most recent call last):")
    assert failure.traceback.endswith("ValueError: no such card\n")
    assert "in caught" in failure.traceback


def test_a_class_is_named_with_its_module_unless_it_is_builtin():
    assert describe(Outer.Inner()).error_class == f"{__name__}.Outer.Inner"
    assert describe(KeyError()).error_class == "KeyError"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("first line\nsecond line"), "ValueError: first line"),
        (ValueError(), "ValueError"),
        (ValueError("\nsecond line"), "ValueError"),
        (KeyError("card"), "KeyError: 'card'"),
    ],
    ids=repr,
)
def test_a_failure_is_told_in_one_line(error, said):
    assert str(describe(error)) == said


def test_causes_are_in_the_traceback():
    try:
        try:
            raise KeyError("card")
        except KeyError as missing:
            raise ValueError("cannot charge") from missing
    except ValueError as error:
        failure = describe(error)

    assert "KeyError: 'card'" in failure.traceback
    assert "ValueError: cannot charge" in failure.traceback


@pytest.mark.parametrize("kind", [Unreadable, Unprintable])
def test_an_exception_whose_message_cannot_be_read_is_kept_without_it(kind):
    failure = describe(caught(kind()))

    assert_fit(failure)
    assert failure.error_class == f"{__name__}.{kind.__qualname__}"
    assert failure.message.startswith("(its message cannot be read: ")


def test_an_exception_whose_traceback_cannot_be_read_is_kept_without_it():
    failure = describe(caught(Untraceable("odd")))

    assert failure.message == "odd"
    assert failure.traceback == "(its traceback cannot be read: RuntimeError)"


def test_text_is_cut_only_if_it_is_too_long_and_says_by_how_much():
    assert readable("x" * LONGEST) == "x" * LONGEST

    cut = readable("x" * (LONGEST + 1))
    assert f"… {LONGEST + 1 - cut.count('x'):,} characters left out …" in cut


def test_a_message_of_ten_megabytes_is_cut_in_the_middle():
    failure = describe(caught(ValueError("begin " + "x" * 10_000_000 + " end")))

    assert_fit(failure)
    assert failure.message.startswith("begin xxx")
    assert failure.message.endswith("xxx end")
    assert "characters left out" in failure.message
    assert failure.traceback.startswith("Traceback")


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b", "\udcff\x00" * 100_000], ids=["nul", "surrogate", "many"])
def test_what_a_column_cannot_hold_is_replaced(text):
    failure = describe(caught(ValueError(text)))

    assert_fit(failure)
    assert failure.message


def test_causes_that_go_in_a_circle_come_to_an_end():
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first

    failure = describe(first)

    assert_fit(failure)
    assert failure.message == "first"


def test_a_chain_of_ten_thousand_causes_is_cut():
    error = last = ValueError("the first")
    for number in range(10_000):
        last.__cause__ = KeyError(number)
        last = last.__cause__

    assert_fit(describe(error))


def test_a_group_of_exceptions_is_kept_with_its_members():
    failure = describe(caught(ExceptionGroup("several", [ValueError("one"), ExceptionGroup("in", [KeyError("two")])])))

    assert_fit(failure)
    assert failure.error_class == "ExceptionGroup"
    assert "ValueError: one" in failure.traceback
    assert "KeyError: 'two'" in failure.traceback


def test_groups_nested_deeper_than_python_can_print_do_no_harm():
    error: Exception = ValueError("innermost")
    for _ in range(5_000):
        error = ExceptionGroup("outer", [error])

    assert_fit(describe(error))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()], ids=repr)
def test_what_is_no_exception_can_be_described_as_well(error):
    assert describe(error).error_class == type(error).__name__


def test_a_syntax_error_with_odd_details_does_no_harm():
    error = SyntaxError("odd")
    error.lineno, error.offset, error.text = 3, 10**9, "x = \ud800"

    assert_fit(describe(error))


def test_a_class_with_an_odd_name_does_no_harm():
    odd = type("Odd" + "x" * 100_000, (Exception,), {"__module__": "odd\ud800"})

    assert_fit(describe(odd()))


def test_when_its_handler_raises_as_well_both_are_kept():
    failure = describe_both(caught(ValueError("no card")), "back_off", caught(KeyError("retry_after")))

    assert failure.error_class == "ValueError"
    assert failure.message == "no card\n(its handler 'back_off' raised KeyError: 'retry_after')"
    assert "ValueError: no card" in failure.traceback
    assert "The handler 'back_off' was called with it and raised" in failure.traceback
    assert "KeyError: 'retry_after'" in failure.traceback


def test_two_long_failures_together_are_not_too_long():
    assert_fit(describe_both(ValueError("x" * LONGEST), "back_off", KeyError("y" * LONGEST)))


def test_a_failure_with_a_long_first_line_is_still_one_line():
    assert_fit(Failure("shop.CardRefused", "x" * 10_000, ""))


@given(st.text(st.characters(), max_size=200), st.integers(0, 1_000))
def test_readable_text_fits_whatever_it_is_made_of(text, times):
    clean = readable(text * times)

    assert "\x00" not in clean
    assert len(clean) <= LONGEST
    assert clean.encode().decode() == clean


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")))
def test_readable_text_is_left_alone_if_there_is_nothing_wrong_with_it(text):
    assert readable(text) == text
