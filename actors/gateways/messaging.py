"""How the shop reaches people, and the partners that know them too."""

from __future__ import annotations

from dataclasses import dataclass

from actors.gateways.service import Service


@dataclass(frozen=True)
class Message:
    """Something that was sent."""

    to: str
    text: str


class Messenger(Service):
    """Mail, text messages or push. It knows no keys: what is sent twice arrives twice."""

    def reset(self) -> None:
        super().reset()
        self.outbox: list[Message] = []

    def send(self, to: str, text: str) -> None:
        """Send a message."""
        self._receive()
        self.outbox.append(Message(to, text))


class IdentityProvider(Service):
    """Asks people for their passports."""

    def reset(self) -> None:
        super().reset()
        self.asked: list[str] = []

    def ask(self, email: str, *, key: str) -> str:
        """Ask somebody to prove who they are, and return the number of the case."""
        self._receive()
        return self._once(key, lambda: self._open_case(email))

    def _open_case(self, email: str) -> str:
        self.asked.append(email)
        return f"case-{len(self.asked)}"


class Partner(Service):
    """Another company that has data of our customers."""

    def reset(self) -> None:
        super().reset()
        self.forgotten: set[str] = set()

    def forget(self, email: str) -> None:
        """Erase everything about a customer."""
        self._receive()
        self.forgotten.add(email)


class Crm(Partner):
    """Where calls with customers are planned."""

    def reset(self) -> None:
        super().reset()
        self.calls: list[str] = []

    def book_call(self, email: str, *, key: str) -> str:
        """Plan a call with a customer and return its number."""
        self._receive()
        return self._once(key, lambda: self._book(email))

    def _book(self, email: str) -> str:
        self.calls.append(email)
        return f"call-{len(self.calls)}"
