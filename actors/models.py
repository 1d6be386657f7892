"""The shop's tables: its customers, its goods, its money and its papers."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal

from sqlalchemy import CheckConstraint, DateTime, Engine, ForeignKey, MetaData
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from sqlalchemy.schema import CreateSchema

OrderStatus = Literal["placed", "paid", "shipped", "canceled"]
ParcelStatus = Literal["in_transit", "delivered", "timed_out"]
PaymentStatus = Literal["new", "in_review", "captured", "declined", "canceled", "refunded"]
SubscriptionStatus = Literal["trial", "active", "past_due", "expired", "closed"]
WebhookStatus = Literal["pending", "delivered", "undeliverable"]


class Base(DeclarativeBase):
    """The shop lives in a Postgres schema of its own; amounts of money are in cents."""

    metadata = MetaData(schema="shop")
    type_annotation_map = {datetime: DateTime(timezone=True), dict[str, Any]: JSONB}


class User(Base):
    """A customer."""

    __tablename__ = "users"

    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    phone: Mapped[str] = mapped_column(default="")
    card: Mapped[str | None]
    closed: Mapped[bool] = mapped_column(default=False)
    unsubscribed: Mapped[bool] = mapped_column(default=False)
    sms_enabled: Mapped[bool] = mapped_column(default=False)
    profile_complete: Mapped[bool] = mapped_column(default=False)
    email_verified: Mapped[bool] = mapped_column(default=False)
    phone_verified: Mapped[bool] = mapped_column(default=False)
    verified_at: Mapped[datetime | None]
    welcomed_at: Mapped[datetime | None]
    call_booked_at: Mapped[datetime | None]
    onboarded_at: Mapped[datetime | None]
    last_contacted_at: Mapped[datetime | None]

    orders: Mapped[list[Order]] = relationship(back_populates="user")


class Product(Base):
    """Something on the shelf."""

    __tablename__ = "products"
    __table_args__ = (CheckConstraint("in_stock >= 0"),)

    sku: Mapped[str] = mapped_column(primary_key=True)
    price: Mapped[int]
    in_stock: Mapped[int]


class Order(Base):
    """What a customer wants to have; it outlives the customer's account, for the books."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int | None] = mapped_column(ForeignKey(User.id))
    email: Mapped[str]
    card: Mapped[str | None]
    status: Mapped[OrderStatus] = mapped_column(default="placed")

    user: Mapped[User | None] = relationship(back_populates="orders")
    lines: Mapped[list[OrderLine]] = relationship(lazy="selectin", order_by="OrderLine.sku")

    @property
    def total(self) -> int:
        """What the order costs."""
        return sum(line.price * line.quantity for line in self.lines)


class OrderLine(Base):
    """So many of one product, at the price of the day."""

    __tablename__ = "order_lines"

    order_id: Mapped[int] = mapped_column(ForeignKey(Order.id), primary_key=True)
    sku: Mapped[str] = mapped_column(ForeignKey(Product.sku), primary_key=True)
    quantity: Mapped[int]
    price: Mapped[int]


class StockMovement(Base):
    """Goods that left the shelf for an order (less than zero) or came back (more)."""

    __tablename__ = "stock_movements"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey(Order.id))
    sku: Mapped[str] = mapped_column(ForeignKey(Product.sku))
    quantity: Mapped[int]


class Parcel(Base):
    """An order on its way."""

    __tablename__ = "parcels"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey(Order.id))
    tracking_number: Mapped[str]
    status: Mapped[ParcelStatus] = mapped_column(default="in_transit")
    delivered_at: Mapped[datetime | None]


class Payment(Base):
    """An order paid in advance: the amount is held first and taken later."""

    __tablename__ = "payments"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey(Order.id))
    card: Mapped[str | None]
    amount: Mapped[int]
    status: Mapped[PaymentStatus] = mapped_column(default="new")
    risk_score: Mapped[int | None]
    review_note: Mapped[str | None]
    hold: Mapped[str | None]
    failure: Mapped[str | None]
    captured_at: Mapped[datetime | None]

    order: Mapped[Order] = relationship(lazy="joined")


class Subscription(Base):
    """A plan that is paid for period by period."""

    __tablename__ = "subscriptions"

    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey(User.id))
    price: Mapped[int]
    paid_until: Mapped[date]
    status: Mapped[SubscriptionStatus] = mapped_column(default="active")

    user: Mapped[User] = relationship(lazy="joined")


class Charge(Base):
    """Money that came in, for an order or a subscription."""

    __tablename__ = "charges"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int | None] = mapped_column(ForeignKey(Order.id))
    subscription_id: Mapped[int | None] = mapped_column(ForeignKey(Subscription.id, ondelete="SET NULL"))
    amount: Mapped[int]
    receipt: Mapped[str]
    charged_at: Mapped[datetime]


class Document(Base):
    """A scan that a customer sent in."""

    __tablename__ = "documents"

    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey(User.id))
    path: Mapped[str]
    text: Mapped[str] = mapped_column(default="")
    analysis: Mapped[dict[str, Any] | None]
    summary: Mapped[str | None]


class Export(Base):
    """A copy of everything the shop knows of a customer."""

    __tablename__ = "exports"

    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey(User.id))
    last_step: Mapped[str | None]
    path: Mapped[str | None]
    exported_at: Mapped[datetime | None]

    user: Mapped[User] = relationship(lazy="joined")


class Webhook(Base):
    """News for another system, delivered to its URL."""

    __tablename__ = "webhooks"

    id: Mapped[int] = mapped_column(primary_key=True)
    url: Mapped[str]
    payload: Mapped[dict[str, Any]]
    status: Mapped[WebhookStatus] = mapped_column(default="pending")
    delivered_at: Mapped[datetime | None]


class Report(Base):
    """What the tax authority wants to know about the days from one date to another."""

    __tablename__ = "reports"

    id: Mapped[int] = mapped_column(primary_key=True)
    begins: Mapped[date]
    ends: Mapped[date]
    tax_number: Mapped[str | None]
    revenue: Mapped[int | None]
    audited_at: Mapped[datetime | None]
    receipt: Mapped[str | None]


def create_tables(engine: Engine) -> None:
    """Create the shop's schema and tables where they are missing."""
    with engine.begin() as conn:
        conn.execute(CreateSchema("shop", if_not_exists=True))
        Base.metadata.create_all(conn)
