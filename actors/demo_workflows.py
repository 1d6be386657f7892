"""What the demo's workers load: the shop's workflows, and an outside world that takes its time to answer."""

from __future__ import annotations

import os

from actors import workflows as workflows
from actors.demo_stage import CONNECTION
from actors.gateways import carrier, fraud_detector, mailer, payments, warehouse

warehouse.slow_down(0.3)
for service in (carrier, fraud_detector, mailer, payments):
    service.slow_down(0.1)

os.environ["PGAPPNAME"] = f"{CONNECTION} {os.getpid()}"
