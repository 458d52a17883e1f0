"""Every promise of ``flask_idempotency.stores.Store`` as a test, collected from one module for each idea."""

import pytest

from flask_idempotency.stores import Store
from flask_idempotency.testing.checkpoint_fence import CheckpointFence
from flask_idempotency.testing.checkpoint_times import CheckpointTimes
from flask_idempotency.testing.checkpointing import Checkpointing
from flask_idempotency.testing.claiming import Claiming
from flask_idempotency.testing.completing import Completing
from flask_idempotency.testing.expiring import Expiring
from flask_idempotency.testing.forgetting import Forgetting
from flask_idempotency.testing.freeing import Freeing
from flask_idempotency.testing.given import LetPass
from flask_idempotency.testing.leasing import Leasing
from flask_idempotency.testing.looking import Looking
from flask_idempotency.testing.measuring import Measuring
from flask_idempotency.testing.quarantining import Quarantining
from flask_idempotency.testing.resolving import Resolving


class StoreContract(
    Claiming,
    Leasing,
    Completing,
    Expiring,
    Looking,
    Checkpointing,
    CheckpointFence,
    CheckpointTimes,
    Quarantining,
    Resolving,
    Freeing,
    Forgetting,
    Measuring,
):
    """What every store promises. Subclass it, give ``store`` and ``let_pass``, and pytest finds the tests.

    ::

        class TestMyStore(StoreContract):
            @pytest.fixture
            def store(self):
                return MyStore()

            @pytest.fixture
            def let_pass(self, store):
                return store.move_its_clock

    Ask pytest for readable failures with ``pytest.register_assert_rewrite("flask_idempotency.testing")``.
    """

    @pytest.fixture
    def store(self) -> Store:
        """Give a store that is set up and holds no record."""
        raise NotImplementedError("Override the fixture `store`: an empty store, ready for use.")

    @pytest.fixture
    def let_pass(self, store: Store) -> LetPass:
        """Give a function that makes *store* believe that a duration has passed, without waiting for it."""
        raise NotImplementedError("Override the fixture `let_pass`: move the store's clock, or the times it holds.")
