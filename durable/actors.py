"""What `dramatiq durable.actors` runs: finds the application's workflows and makes this process a worker."""

from __future__ import annotations

import logging

from durable import discovery, registry, runtime, worker

log = logging.getLogger("durable.actors")


def _begin() -> None:
    with worker.explaining():
        if runtime.current().broker is not None:
            worker.prepare()  # before the application's own actors, if it has any
        sources = discovery.load_workflows(runtime.current().settings)
        worker.prepare()  # again: the application may have called configure()
    for source in sources:
        log.info("workflows of %s (named by %s)", source.module, source.origin)
    log.info("%s workflow classes are loaded", len(registry.loaded()))


_begin()
