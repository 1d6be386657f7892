"""How long the shop waits for people and banks."""

from __future__ import annotations

import os

AN_HOUR = os.environ.get("SHOP_HOUR", "1h")
"""An hour; the demo, which nobody wants to watch for an hour, makes it a second."""
