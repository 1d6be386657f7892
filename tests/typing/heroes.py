"""Heroes whose types the other files assert."""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """The tables."""


class Subscription(Base):
    """A hero with a whole number as its key."""

    __tablename__ = "typed_subscriptions"

    id: Mapped[int] = mapped_column(primary_key=True)
    closed: Mapped[bool]
    prepaid: Mapped[bool]


class Account(Base):
    """Another hero."""

    __tablename__ = "typed_accounts"

    id: Mapped[UUID] = mapped_column(primary_key=True)


class OrderInput(BaseModel):
    """The input of a workflow."""

    amount: int


class RateLimited(Exception):
    """An exception that says how long to wait."""

    retry_after: float = 1.0
