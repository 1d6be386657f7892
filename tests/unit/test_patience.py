"""Whose fault an error is, and what may be tried again."""

from __future__ import annotations

import psycopg
import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from durable.patience import is_at_fault, is_transient, may_pass, not_the_steps


def of_the_database(sqlstate):
    """Make the error that SQLAlchemy raises for one of the database's."""
    return OperationalError("SELECT 1", {}, psycopg.errors.lookup(sqlstate)("no"))


@pytest.mark.parametrize("sqlstate", ["08006", "40001", "40P01", "57P01", "57P03", "57P05"])
def test_a_connection_that_the_server_ends_is_the_databases_fault(sqlstate):
    assert is_transient(of_the_database(sqlstate))
    assert may_pass(of_the_database(sqlstate))


@pytest.mark.parametrize("sqlstate", ["53200", "53300", "55P03", "57014"])
def test_a_limit_of_the_server_is_the_steps_affair_but_in_our_own_statements_it_passes(sqlstate):
    assert not is_transient(of_the_database(sqlstate))
    assert may_pass(of_the_database(sqlstate))
    assert may_pass(psycopg.errors.lookup(sqlstate)("no"))


@pytest.mark.parametrize("error", [of_the_database("22012"), of_the_database("23505"), ValueError()])
def test_what_stays_wrong_is_not_tried_again(error):
    assert not may_pass(error)


@pytest.mark.parametrize(
    ("error", "passes"), [(of_the_database("55P03"), True), (PoolTimeout(), True), (KeyError(), False)]
)
def test_our_own_statements_errors_are_not_the_steps_if_they_may_pass(error, passes):
    with pytest.raises(type(error)), not_the_steps():
        raise error

    assert is_at_fault(error) is passes


def test_causes_in_a_circle_come_to_an_end():
    first, second = ValueError(), ValueError()
    first.__cause__, second.__cause__ = second, first

    assert not is_at_fault(first)


def test_a_cause_at_fault_is_found_behind_other_causes():
    error, cause, last = ValueError(), ValueError(), PoolTimeout()
    error.__cause__, cause.__context__ = cause, last
    with pytest.raises(PoolTimeout), not_the_steps():
        raise last

    assert is_at_fault(error)
