"""Definitions that mypy --strict and pyright accept as they are, and the types that they keep."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, TypeVar, assert_type
from uuid import UUID

from sqlalchemy.orm import Session
from tenacity import wait_chain, wait_exponential_jitter, wait_fixed

from durable import ExceptionPolicy, Workflow, WorkflowState, cancel_if, on_exception, removed_step, step
from tests.typing.heroes import Account, Base, OrderInput, RateLimited, Subscription


def by_year(hero: Subscription, given: object) -> str:
    return f"{hero.id}:{given}"


class Renewal(
    Workflow[Subscription],
    name="renewal",
    version=2,
    queue="billing",
    priority=-1,
    may_proceed_without_hero=True,
    unique=by_year,
    unique_in=["ready", WorkflowState.PAUSED],
):
    policies = [
        ExceptionPolicy("reattempt", matching=TimeoutError, wait="15s"),
        ExceptionPolicy("reattempt", matching=[KeyError, "requests.Timeout"], wait=wait_exponential_jitter(max=60)),
        ExceptionPolicy("reattempt", wait=wait_chain(wait_fixed(1), wait_fixed(5)), max_reattempts=None),
        ExceptionPolicy("reattempt", max_reattempts=5, terminal_action="cancel", report="terminal_only"),
    ]

    @cancel_if
    def closed(self) -> bool:
        assert_type(self.hero, Subscription)
        return self.hero.closed

    @cancel_if
    async def expired(self) -> bool:
        return self.hero.closed

    @on_exception(RateLimited, report="never")
    def back_off(self, error: RateLimited) -> None:
        assert_type(self.hero, Subscription)
        self.reattempt(wait=error.retry_after)

    @on_exception
    def decide(self, error: Exception) -> None:
        self.pause(str(error))

    @on_exception(KeyError, "requests.Timeout")
    async def look_it_up(self, error: Exception) -> None: ...

    @step
    def send_notice(self) -> None:
        assert_type(self.hero, Subscription)
        assert_type(self.hero.id, int)
        assert_type(self.session, Session)
        assert_type(self.execution.id, UUID)
        assert_type(self.execution.attempt, int)
        assert_type(self.execution.idempotency_key, str)
        assert_type(self.data, dict[str, Any])
        assert_type(self.results["charge"], Any)
        self.logger.info("sent to %s", self.hero.id)

    @step(wait=timedelta(days=3), skip_if="prepaid", on_exception="pause")
    def charge(self) -> dict[str, int]:
        if self.hero.closed:
            self.cancel("closed")
        return {"amount": 9}

    @step(skip_if=lambda self: True, on_exception="reattempt", max_reattempts=3, terminal_action="skip")
    async def fetch(self) -> int:
        assert_type(self.hero, Subscription)
        return 1

    @step("collect money", wait=90, on_exception=[ExceptionPolicy("skip", matching=KeyError), ExceptionPolicy("fail")])
    def collect(self) -> None:
        self.finish({"collected": True})

    for delay in ["30s"] * 4 + ["5m"] * 6:

        @step(wait=delay)
        def _(self) -> None:
            self.check_status()

    @step(before_step=charge, skip_if=False)
    def check_limits(self) -> None: ...

    @step(after_step="charge", on_exception=ExceptionPolicy("fail"))
    def thank(self) -> None:
        if self.hero.prepaid:
            self.pause("look at it", then="next")
        self.skip()

    send_fax = removed_step()

    def prepaid(self) -> bool:
        return self.hero.prepaid

    def check_status(self) -> str:
        return "open"


async def decorators_keep_signatures(renewal: Renewal) -> None:
    assert_type(renewal.send_notice(), None)
    assert_type(renewal.charge(), dict[str, int])
    assert_type(await renewal.fetch(), int)
    assert_type(renewal.closed(), bool)
    assert_type(renewal.back_off(RateLimited()), None)
    assert_type(renewal.decide(ValueError()), None)
    assert_type(await renewal.look_it_up(KeyError()), None)
    unbound: Callable[[Renewal], dict[str, int]] = Renewal.charge
    assert_type(unbound(renewal), dict[str, int])


class Yearly(Renewal, queue="yearly"):
    """A subclass continues its base, and its hero."""

    def charge(self) -> dict[str, int]:
        assert_type(self.hero, Subscription)
        return super().charge()

    @step(before_step=Renewal.charge)
    def check(self) -> None: ...

    @step
    def send_notice(self) -> None:
        return super().send_notice()


class Plain(Workflow):
    """A workflow that does not name the class of its hero."""

    @step
    def anything(self) -> None:
        assert_type(self.hero, Any)
        self.hero.whatever()

    @step
    def nothing(self) -> None:
        self.fail("nothing to do")


class Typed(Workflow[Account]):
    """A workflow that names the class of its input."""

    input: OrderInput

    @step
    def order(self) -> int:
        assert_type(self.input, OrderInput)
        assert_type(self.hero, Account)
        return self.input.amount


class Heroless(Workflow[None], unique="none"):
    """A workflow without a hero."""

    @step
    def sweep(self) -> None:
        assert_type(self.hero, None)


AnyHero = TypeVar("AnyHero", bound=Base)


class Audited(Workflow[AnyHero], Generic[AnyHero]):
    """A base for workflows about heroes of several classes."""

    @cancel_if
    def frozen(self) -> bool:
        return not self.hero.metadata.tables


class AuditedRenewal(Audited[Subscription]):
    @step
    def look(self) -> None:
        assert_type(self.hero, Subscription)


def check(workflow: Workflow[Any]) -> None:
    workflow.reattempt()


class Assigned(Workflow[Subscription]):
    """One function for several steps."""

    soon = step(wait="30s")(check)
    later = step(wait="5m")(check)
    at_last = step(check)
