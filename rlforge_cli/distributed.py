"""Several processes of one host that train, or score, one policy: ``torchrun`` starts them, and each is a rank.

Every rank holds the whole policy, its float32 masters and its optimizer, and takes the same steps. Shared out is the
work: completions are generated and graded, and rows differentiated, by one rank each; only completions and gradients
travel. That suits any model that fits one device. A larger one needs its weights in shards as well (FSDP2), which is
another thing than this.

With one process everything here is the identity and torch.distributed is never touched.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from rlforge_cli.errors import RunFailed, Terminated, UserError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
R = TypeVar("R")

ONE_REQUEST_S = 1.0
"""Signals closer than this are one request: a terminal and a wrapper such as ``timeout`` both pass it on."""
PATIENCE = timedelta(minutes=30)
"""How long a rank waits for another: longer than ranks differ in a rollout, or than saving a model takes."""


def place() -> tuple[int, int]:
    """This process's rank and the number of ranks, as torchrun's environment says; ``(0, 1)`` without one."""
    if not {"RANK", "LOCAL_RANK", "WORLD_SIZE"} <= set(os.environ):
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Ranks:
    """The processes that share the work, seen from one of them. ``Ranks()`` is a process alone."""

    def __init__(self, *, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self.asked_to_stop: int | None = None
        """The signal that this process was sent."""
        self.asked_at = 0.0
        self.interruptible = size == 1

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes and prints."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Every rank's ``value``, in their order.

        Raises:
            RunFailed: another rank is gone.
        """
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(values, value)
        except RuntimeError as error:
            raise RunFailed(
                f"process {self.rank} waited for another one that is gone or too slow; what that one printed says why "
                f"({str(error).partition(chr(10))[0][:200]})"
            ) from error
        return values

    def together(self, work: Callable[[], T], *, interruptible: bool = True) -> T:
        """This rank's ``work()``. What is raised in one rank ends it in all of them, and so does a stop request to one
        unless it is not ``interruptible``. ``work`` must not wait for another rank.

        Raises:
            UserError, RunFailed: raised in some rank; there, any other exception is raised as it is.
            KeyboardInterrupt, Terminated: a rank was asked to stop.
        """
        if self.size == 1:
            return work()
        value: Any = None
        error: Exception | None = None
        try:
            self.interruptible = interruptible
            if not (interruptible and self.asked_to_stop):
                value = work()
        except (KeyboardInterrupt, Terminated):
            assert self.asked_to_stop
        except Exception as caught:  # the other ranks must hear of it before it goes on
            error = caught
        finally:
            self.interruptible = False
        outcomes = self.gather((failure(error, self.rank), self.asked_to_stop if interruptible else None))
        if error is not None:
            raise error
        for failed, _ in outcomes:
            if failed is not None:
                raise failed[0](failed[1])
        for _, asked in outcomes:
            if asked is not None:
                raise KeyboardInterrupt if asked == signal.SIGINT else Terminated
        return value

    def in_first(self, work: Callable[[], T]) -> T:
        """``work()`` in the first rank alone, while the others wait; its value (or what it raises) in all of them."""
        value: Any = self.together(lambda: work() if self.first else None, interruptible=False)
        return self.gather(value)[0]

    def share_out(self, items: Sequence[T], work: Callable[[Sequence[T], Sequence[int]], list[R]]) -> list[R]:
        """``work(some, places)`` on every so manieth item in each rank; one result an item, in order, in all ranks."""
        places = range(self.rank, len(items), self.size)
        mine = self.together(lambda: work([items[i] for i in places], places) if places else [])
        results: list[Any] = [None] * len(items)
        for rank, part in enumerate(self.gather(mine)):
            results[rank :: self.size] = part
        return results

    def stretch(self, weights: Sequence[int]) -> range:
        """Which of a row of items are this rank's: neighbours, of about equal weight in each rank; maybe none.

        Example: weights [1, 1, 4] in two ranks are cut into [0, 1] and [2].
        """
        total, before, mine = sum(weights), 0, []
        for index, weight in enumerate(weights):
            if (2 * before + weight) * self.size // (2 * total) == self.rank:  # where its middle lies
                mine.append(index)
            before += weight
        return range(mine[0], mine[-1] + 1) if mine else range(0)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Sum each over the ranks, in place; every rank has the same bits then."""
        if self.size == 1:
            return
        import torch.distributed as dist

        for handle in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            handle.wait()

    def copy_first(self, tensors: Sequence[Tensor]) -> None:
        """The first rank's values into every rank's tensors."""
        if self.size == 1:
            return
        import torch.distributed as dist

        for tensor in tensors:
            dist.broadcast(tensor.detach(), src=0)

    def ask_to_stop(self, number: int, _: object) -> None:
        """A signal handler: ends interruptible work at once; anything else goes on until the ranks next agree, or, in a
        process alone, until :meth:`release` or the second request."""
        now = time.monotonic()
        again = self.asked_to_stop is not None and now - self.asked_at >= ONE_REQUEST_S
        if self.asked_to_stop is None:
            self.asked_to_stop, self.asked_at = number, now
        if self.interruptible or (self.size == 1 and again):
            self.stop(number)

    def stop(self, number: int) -> None:
        self.interruptible = False  # what is begun now, such as saving, is not cut by the same request
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated

    def hold(self) -> None:
        """From here to :meth:`release` a process alone is not interruptible: its weights lie between two steps."""
        if self.size == 1:
            self.interruptible = False

    def release(self) -> None:
        """
        Raises:
            KeyboardInterrupt, Terminated: the process was asked to stop meanwhile.
        """
        if self.size == 1:
            self.interruptible = True
            if self.asked_to_stop is not None:
                self.stop(self.asked_to_stop)

    @contextlib.contextmanager
    def stoppable(self) -> Iterator[None]:
        """Meanwhile SIGINT and SIGTERM go to :meth:`ask_to_stop`, in a process alone too."""
        if self.size > 1 or threading.current_thread() is not threading.main_thread():
            yield
            return
        self.asked_to_stop, self.interruptible = None, True
        before = {number: signal.signal(number, self.ask_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            self.asked_to_stop, self.interruptible = None, True
            for number, handler in before.items():
                signal.signal(number, handler)


ALONE = Ranks()


def failure(error: Exception | None, rank: int) -> tuple[type[Exception], str] | None:
    """What the other ranks raise for ``error``."""
    if error is None:
        return None
    if isinstance(error, (UserError, RunFailed)):
        return UserError if isinstance(error, UserError) else RunFailed, str(error)
    return RunFailed, f"process {rank} failed: {type(error).__name__}: {error}"


@contextlib.contextmanager
def joined() -> Iterator[Ranks]:
    """The ranks that torchrun started, able to talk; signals are theirs from here to the end of the process.

    Objects travel between CPUs (gloo), tensors between the devices that they are on (NCCL on CUDA).

    Raises:
        UserError: ranks on several hosts.
    """
    rank, size = place()
    if size == 1:
        yield ALONE
        return
    if (here := int(os.environ.get("LOCAL_WORLD_SIZE", size))) != size:
        raise UserError(f"{size} processes, {here} of them on this host: use one host (torchrun --nnodes 1)")
    import torch
    import torch.distributed as dist

    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=PATIENCE)
    ranks = Ranks(rank=rank, size=size)
    # kept to the end: a second signal (a terminal's, then torchrun's) must not cut what the first one has begun
    signal.signal(signal.SIGINT, ranks.ask_to_stop)
    signal.signal(signal.SIGTERM, ranks.ask_to_stop)
    try:
        yield ranks
    except (UserError, KeyboardInterrupt, Terminated):
        leave()
        raise
    # after any other exception a rank may be gone, and this one would wait for it
    leave()


def leave() -> None:
    """End this process's part of the group, unless vLLM has done so with its engine."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
