"""How the tests without services look for counterexamples, and that they leave no workflow classes behind."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from durable import registry

settings.register_profile("unit", deadline=None, database=None)
settings.load_profile("unit")


@pytest.fixture(autouse=True)
def _forgotten_classes() -> Iterator[None]:
    before = registry.loaded()
    yield
    for name in registry.loaded().keys() - before.keys():
        registry.forget(name)
