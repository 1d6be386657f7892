"""Mistakes that mypy --strict and pyright must both find: on every line that ends in `# wrong`, and on no other."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session
from tenacity import retry_always

from durable import ExceptionPolicy, Workflow, WorkflowState, cancel_if, on_exception, removed_step, step, workflow_of
from tests.typing.defining import Heroless, Renewal, Typed
from tests.typing.heroes import Account, Subscription
from tests.typing.using import Contract


def use(value: object) -> None: ...


def creating(subscription: Subscription, account: Account, session: Session) -> None:
    Renewal.create()  # wrong
    Renewal.create(account)  # wrong
    Renewal.create(None)  # wrong
    Heroless.create(subscription)  # wrong
    Renewal.create(subscription, wiat="3d")  # wrong
    Renewal.create(subscription, wait=["3d"])  # wrong
    Renewal.create(subscription, priority="high")  # wrong
    Renewal.create(subscription, session="session")  # wrong
    Renewal.create(subscription, {}, session)  # wrong
    Renewal.get_or_create(account)  # wrong
    Renewal.create_many(subscription)  # wrong
    Renewal.create_many([account])  # wrong
    Renewal.ongoing(account)  # wrong
    heroes: list[Account] = Renewal.create_many([subscription]).skipped  # wrong
    use(heroes)


def reading(renewal: Renewal, typed: Typed) -> None:
    Renewal.get(5)  # wrong
    Renewal.list(states="ready")  # wrong
    Renewal.list(limit="10")  # wrong
    Renewal.count(state=5)  # wrong
    use(renewal.hero.colour)  # wrong
    use(typed.input.amonut)  # wrong
    use(renewal.staet)  # wrong
    renewal.state = WorkflowState.PAUSED  # wrong
    reason: str = renewal.reason  # wrong
    use(reason)


def steering(renewal: Renewal) -> None:
    renewal.pause(then="later")  # wrong
    renewal.resume(att="charge")  # wrong
    renewal.cancel(5)  # wrong
    renewal.retry("charge", "ann")  # wrong
    renewal.restart()  # wrong
    other: Typed = renewal.skip()  # wrong
    use(other)


async def awaiting(renewal: Renewal, account: Account) -> None:
    renewal.apause()  # wrong
    await renewal.pause()  # wrong
    await Renewal.acreate(account)  # wrong
    await renewal.aresume(att="charge")  # wrong


def decorators_keep_signatures(renewal: Renewal) -> None:
    renewal.send_notice("now")  # wrong
    renewal.back_off(ValueError())  # wrong
    amount: str = renewal.charge()  # wrong
    use(amount)


def no_arguments() -> None: ...
def one_argument(workflow: Workflow[Any]) -> None: ...
def two_arguments(workflow: Workflow[Any], error: Exception) -> None: ...


step(no_arguments)  # wrong
step(two_arguments)  # wrong
step(wait="3d")(two_arguments)  # wrong
step(5)  # wrong
step(wait=["3d"])  # wrong
step(wiat="3d")  # wrong
step(skip_if=3)  # wrong
step(skip_if=no_arguments)  # wrong
step(on_exception="explode")  # wrong
step(on_exception=ValueError)  # wrong
step(on_exception=["reattempt"])  # wrong
step(on_exception="reattempt", max_reattempts="3")  # wrong
step(on_exception="reattempt", terminal_action="reattempt")  # wrong
step(before_step=3)  # wrong
cancel_if(two_arguments)  # wrong
cancel_if()  # wrong
on_exception(KeyError)(one_argument)  # wrong
on_exception(one_argument)  # wrong
on_exception(5)  # wrong
on_exception(KeyError, report="sometimes")  # wrong
on_exception(KeyError, wait="5s")  # wrong
removed_step("send_fax")  # wrong
workflow_of(Subscription)  # wrong

ExceptionPolicy("explode")  # wrong
ExceptionPolicy()  # wrong
ExceptionPolicy("reattempt", KeyError)  # wrong
ExceptionPolicy("reattempt", matching=int)  # wrong
ExceptionPolicy("reattempt", matching=KeyError())  # wrong
ExceptionPolicy("reattempt", matching=[KeyError, KeyboardInterrupt])  # wrong
ExceptionPolicy("reattempt", wait=retry_always)  # wrong
ExceptionPolicy("reattempt", max_reattempts=2.5)  # wrong
ExceptionPolicy("reattempt", terminal_action="reattempt")  # wrong
ExceptionPolicy("reattempt", report="sometimes")  # wrong


class WrongPolicies(Workflow[Subscription]):
    policies = ["reattempt"]  # wrong


class WrongBody(Renewal):
    def charge(self, amount: int) -> dict[str, int]:  # wrong
        return {"amount": amount}

    def cancel(self) -> None: ...  # wrong

    def helper(self) -> None:
        self.reattempt(wait=["5s"])  # wrong

    def another(self) -> None:
        self.fail()  # wrong

    def a_third(self) -> None:
        use(self.hero.colour)  # wrong
        use(self.execution.idempotency)  # wrong
        self.session.commmit()  # wrong


def finding(contract: Contract) -> None:
    use(contract.renewal.id)  # wrong
    wrong: Typed | None = contract.renewal  # wrong
    use(wrong)
