"""The clock: the database's own time, which tests may move."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import ColumnElement, DateTime, literal_column


class Clock:
    """Time as a SQL expression, so that no machine's clock ever decides anything."""

    def __init__(self) -> None:
        self._offset = timedelta()

    @property
    def sql(self) -> str:
        """The present as SQL text.

        The statement's time, not `now()`: a step may query long before its settle, which is in the same transaction.
        """
        if not self._offset:
            return "statement_timestamp()"
        return f"(statement_timestamp() + interval '{self._offset.total_seconds()} seconds')"

    @property
    def now(self) -> ColumnElement[object]:
        """The present as a SQLAlchemy expression."""
        return literal_column(self.sql, DateTime(timezone=True))

    def travel(self, by: timedelta) -> None:
        """Move the clock; journeys add up."""
        self._offset += by

    def reset(self) -> None:
        """Come back to the database's time."""
        self._offset = timedelta()
