"""The bank's side of the shop: taking money, and telling who should not be trusted with goods."""

from __future__ import annotations

from dataclasses import dataclass

from actors.gateways.service import Service


class CardDeclined(Exception):
    """The bank says no, and will say no again."""


class HoldExpired(Exception):
    """The amount is no longer held, it was not taken in time."""


class FraudSuspected(Exception):
    """The bank wants a person to look at it first."""


@dataclass(frozen=True)
class Booking:
    """One line of the bank's ledger."""

    number: str
    kind: str
    amount: int


class PaymentGateway(Service):
    """Charges cards, at once or in two moves: hold an amount, then take it. The same key never books twice."""

    def reset(self) -> None:
        super().reset()
        self.ledger: list[Booking] = []

    def charge(self, card: str | None, amount: int, *, key: str) -> str:
        """Take an amount from a card and return the receipt's number."""
        self._receive()
        self._check(card)
        return self._once(key, lambda: self._book("charge", amount))

    def hold(self, card: str | None, amount: int, *, key: str) -> str:
        """Keep an amount on a card for us and return the hold's number."""
        self._receive()
        self._check(card)
        return self._once(key, lambda: self._book("hold", amount))

    def capture(self, hold: str | None, amount: int, *, key: str) -> str:
        """Take an amount that is held and return the receipt's number."""
        self._receive()
        if hold is None:
            raise HoldExpired("nothing is held")
        return self._once(key, lambda: self._book("capture", amount))

    def _check(self, card: str | None) -> None:
        if card is None:
            raise CardDeclined("there is no card")

    def _book(self, kind: str, amount: int) -> str:
        number = f"{kind}-{len(self.ledger) + 1}"
        self.ledger.append(Booking(number, kind, amount))
        return number


class FraudDetector(Service):
    """Guesses, from 0 to 100, how likely a payment is a fraud. Set `risk` to make it suspicious."""

    def reset(self) -> None:
        super().reset()
        self.risk = 10

    def score(self, card: str | None, amount: int) -> int:
        """Return the risk of a payment."""
        self._receive()
        return self.risk
