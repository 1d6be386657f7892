"""Everything outside the shop, as stand-ins that live in this process."""

from __future__ import annotations

from actors.gateways.goods import Carrier, Warehouse
from actors.gateways.internet import Web
from actors.gateways.messaging import Crm, IdentityProvider, Messenger, Partner
from actors.gateways.money import CardDeclined, FraudDetector, FraudSuspected, HoldExpired, PaymentGateway
from actors.gateways.paperwork import Authority, Reader, Storage, Summarizer, UnreadableFile
from actors.gateways.service import RateLimited, Service, ServiceDown

__all__ = [
    "CardDeclined",
    "FraudSuspected",
    "HoldExpired",
    "RateLimited",
    "ServiceDown",
    "UnreadableFile",
    "analytics",
    "authority",
    "carrier",
    "crm",
    "fraud_detector",
    "identity",
    "mailer",
    "payments",
    "push",
    "reader",
    "reset",
    "sms",
    "storage",
    "summarizer",
    "warehouse",
    "web",
]

mailer, sms, push = Messenger(), Messenger(), Messenger()
identity = IdentityProvider()
crm, analytics = Crm(), Partner()
payments, fraud_detector = PaymentGateway(), FraudDetector()
warehouse, carrier = Warehouse(), Carrier()
reader, summarizer, storage, authority = Reader(), Summarizer(), Storage(), Authority()
web = Web()

_MESSAGING: tuple[Service, ...] = (mailer, sms, push, identity, crm, analytics)
_TRADE: tuple[Service, ...] = (payments, fraud_detector, warehouse, carrier)
_PAPERS: tuple[Service, ...] = (reader, summarizer, storage, authority, web)


def reset() -> None:
    """Put all of them in good order."""
    for service in _MESSAGING + _TRADE + _PAPERS:
        service.reset()
