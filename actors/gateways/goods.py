"""Where the goods are: in the warehouse, then with the carrier."""

from __future__ import annotations

from typing import Literal

from actors.gateways.service import Service


class Warehouse(Service):
    """People with trolleys."""

    def reset(self) -> None:
        super().reset()
        self.put_aside_for: list[int] = []

    def put_aside(self, order_id: int, *, key: str) -> str:
        """Have the goods of an order put aside, and return the number of the crate."""
        self._receive()
        return self._once(key, lambda: self._fill_crate(order_id))

    def _fill_crate(self, order_id: int) -> str:
        self.put_aside_for.append(order_id)
        return f"crate-{len(self.put_aside_for)}"


class Carrier(Service):
    """Brings parcels. `deliver` makes one arrive."""

    def reset(self) -> None:
        super().reset()
        self.parcels: dict[str, Literal["in_transit", "delivered"]] = {}

    def book(self, order_id: int, *, key: str) -> str:
        """Have a parcel collected and return its tracking number."""
        self._receive()
        return self._once(key, lambda: self._collect(order_id))

    def status(self, tracking_number: str) -> Literal["in_transit", "delivered"]:
        """Return where a parcel is."""
        self._receive()
        return self.parcels.get(tracking_number, "in_transit")

    def deliver(self, tracking_number: str) -> None:
        """Bring a parcel to its door."""
        self.parcels[tracking_number] = "delivered"

    def _collect(self, order_id: int) -> str:
        number = f"parcel-{len(self.parcels) + 1}-of-order-{order_id}"
        self.parcels[number] = "in_transit"
        return number
