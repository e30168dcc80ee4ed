"""Every random choice of a run derives from (seed, purpose, position): nothing depends on what was drawn before.

So a resumed run needs no generator state, and a seed changes the data order and every sample.
"""

from __future__ import annotations

import hashlib
import random


def derive(seed: int, *position: object) -> int:
    """A 63-bit seed for one purpose. Example: ``derive(0, "rollout", 17, 0)`` for step 17, round 0."""
    text = repr((seed, *position)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def shuffled(count: int, *, seed: int, epoch: int) -> list[int]:
    """The order of ``count`` problems in an epoch."""
    order = list(range(count))
    random.Random(derive(seed, "order", epoch)).shuffle(order)
    return order


class ProblemOrder:
    """An endless walk over shuffled epochs; ``cursor`` (problems drawn so far) is its whole state."""

    def __init__(self, count: int, *, seed: int, cursor: int = 0) -> None:
        assert count > 0
        self.count = count
        self.seed = seed
        self.cursor = cursor
        self._epoch: tuple[int, list[int]] | None = None

    def draw(self, number: int) -> list[int]:
        """The next ``number`` indices; distinct unless the epoch ends between them."""
        drawn = []
        for _ in range(number):
            epoch, place = divmod(self.cursor, self.count)
            if self._epoch is None or self._epoch[0] != epoch:
                self._epoch = (epoch, shuffled(self.count, seed=self.seed, epoch=epoch))
            drawn.append(self._epoch[1][place])
            self.cursor += 1
        return drawn
