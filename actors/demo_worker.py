"""The demo's doomed worker: it runs one step whose warehouse never answers, until it is killed."""

from __future__ import annotations

import sys
from uuid import UUID

import durable
from actors.gateways import warehouse
from actors.order_fulfilment import OrderFulfilment
from durable.executor import perform


def main(execution_id: str) -> None:
    """Run an execution of an order's fulfilment, as far as it comes."""
    warehouse.hang()
    perform(durable.configure(lost_worker_after="2s"), OrderFulfilment, UUID(execution_id))


if __name__ == "__main__":
    main(sys.argv[1])
