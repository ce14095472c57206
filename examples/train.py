"""Data-parallel training: logistic regression on scikit-learn's digits.

    pip install 'zcoll[examples]'
    zcoll run -n 4 examples/train.py

Every replica has its share of the images. The start values are rank 0's
(broadcast), the gradients are summed over all replicas (allreduce), the metrics
are summed while the next step is already computed (allreduce_async), and all
replicas stop at the same step. Rank 0 then trains on the whole batch by itself:
the loss and the accuracy must be the same, or the exit status is 1.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import zcoll

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLASSES = 10
LEARNING_RATE = 0.5
MOMENTUM = 0.9
DECAY = 1e-3  # weight of the L2 penalty
MAX_STEPS = 400
PATIENCE = 10  # steps without an improvement before training stops
MIN_GAIN = 1e-4  # a smaller fall of the validation loss is no improvement


@dataclass(frozen=True)
class Images:
    """Images as rows of pixels, and the digit that each of them shows."""

    pixels: NDArray[np.float64]
    digits: NDArray[np.int64]

    def share(self, rank: int, num_replicas: int) -> Images:
        """Give one replica's part: every ``num_replicas``-th image."""
        return Images(self.pixels[rank::num_replicas], self.digits[rank::num_replicas])


@dataclass(frozen=True)
class Metrics:
    """What the evaluation of some images adds up to."""

    loss: float = 0.0
    right: int = 0
    images: int = 0

    def __add__(self, other: Metrics) -> Metrics:
        """Add the metrics of other images: all that an allreduce needs."""
        return Metrics(
            self.loss + other.loss,
            self.right + other.right,
            self.images + other.images,
        )

    @property
    def mean_loss(self) -> float:
        """The loss of one image on average."""
        return self.loss / self.images

    @property
    def accuracy(self) -> float:
        """The part of the images that was recognised."""
        return self.right / self.images


@dataclass
class Best:
    """The best step so far, which is the outcome when training stops."""

    metrics: Metrics = Metrics(loss=math.inf, images=1)
    step: int = 0

    def is_past(self, step: int, metrics: Metrics) -> bool:
        """Take in one step's metrics, and tell whether to stop."""
        if metrics.mean_loss < self.metrics.mean_loss - MIN_GAIN:
            self.metrics, self.step = metrics, step
        return step - self.step >= PATIENCE


def load_images() -> tuple[Images, Images]:
    """Load the digits, shuffled: images to train on, images to validate with."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - slow, for rank 0 only

    pixels, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(seed=0).permutation(len(digits))
    ones = np.ones((len(digits), 1))  # its weights are the model's bias
    pixels = np.hstack([pixels[order] / 16, ones])
    digits = digits[order]
    cut = len(digits) * 4 // 5
    return Images(pixels[:cut], digits[:cut]), Images(pixels[cut:], digits[cut:])


def start_values(images: Images) -> NDArray[np.float64]:
    """Draw random weights: every process draws other ones."""
    shape = (images.pixels.shape[1], CLASSES)
    return np.random.default_rng().normal(scale=0.01, size=shape)


def probabilities(weights: NDArray[np.float64], images: Images) -> NDArray[np.float64]:
    """Compute the model's belief in each digit, for each image."""
    scores = images.pixels @ weights
    scores -= scores.max(axis=1, keepdims=True)
    odds = np.exp(scores)
    result: NDArray[np.float64] = odds / odds.sum(axis=1, keepdims=True)
    return result


def gradient(weights: NDArray[np.float64], images: Images) -> NDArray[np.float64]:
    """Compute the gradient of the summed loss of some images."""
    error = probabilities(weights, images)
    error[np.arange(len(images.digits)), images.digits] -= 1
    result: NDArray[np.float64] = images.pixels.T @ error
    return result


def evaluate(weights: NDArray[np.float64], images: Images) -> Metrics:
    """Compute the loss and the hits on some images."""
    belief = probabilities(weights, images)
    given = belief[np.arange(len(images.digits)), images.digits]
    return Metrics(
        loss=float(-np.log(given).sum()),
        right=int((belief.argmax(axis=1) == images.digits).sum()),
        images=len(images.digits),
    )


def train(
    comm: zcoll.Communicator,
    start: NDArray[np.float64],
    training: Images,
    validation: Images,
) -> Best:
    """Train on this replica's share, together with the others.

    Args:
        comm: The group that trains. A group of one trains on everything.
        start: The weights to start with. Those of rank 0 are taken.
        training: All images to train on.
        validation: All images that decide when to stop.

    Returns:
        The best step, the same one on every replica.
    """
    total = len(training.digits)
    training = training.share(comm.replica_rank, comm.num_replicas)
    validation = validation.share(comm.replica_rank, comm.num_replicas)

    weights = comm.broadcast(start)
    velocity = np.zeros_like(weights)
    best = Best()
    for step in range(MAX_STEPS):
        # Begin to sum the metrics of the weights so far ...
        metrics = comm.allreduce_async(evaluate(weights, validation))

        # ... while this sums the gradients: what one process would compute.
        slope = comm.allreduce(gradient(weights, training)) / total
        velocity = MOMENTUM * velocity - LEARNING_RATE * (slope + DECAY * weights)
        weights = weights + velocity

        # Everybody gets the same sum, so everybody stops at the same step.
        if best.is_past(step, metrics.result()):
            break
    return best


def agree(one: Best, other: Best) -> bool:
    """Tell whether two trainings came to the same end.

    The order of a sum depends on the number of replicas, and with it the last
    digits of a loss: they are all that may differ.
    """
    return (
        one.step == other.step
        and one.metrics.right == other.metrics.right
        and math.isclose(one.metrics.mean_loss, other.metrics.mean_loss, rel_tol=1e-6)
    )


def main() -> int:
    """Train together, then compare with the training of one process."""
    with zcoll.connect() as comm:
        rank = comm.replica_rank
        images = comm.broadcast(load_images() if rank == 0 else None)
        assert images is not None  # they are rank 0's, on every replica
        start = start_values(images[0])

        begin = time.perf_counter()
        together = train(comm, start, *images)
        seconds = time.perf_counter() - begin

        same = True
        if rank == 0:
            with zcoll.connect(replica_rank=0, num_replicas=1) as one:
                alone = train(one, start, *images)
            same = agree(together, alone)
            for name, best in ("together", together), ("alone", alone):
                print(
                    f"{name:8}  best at step {best.step}:"
                    f" loss {best.metrics.mean_loss:.6f},"
                    f" accuracy {best.metrics.accuracy:.1%}"
                )
            print(
                f"{comm.num_replicas} together ({seconds:.2f} s) and one alone"
                f" {'agree' if same else 'DISAGREE'}"
            )
        return 0 if comm.broadcast(same) else 1


if __name__ == "__main__":
    sys.exit(main())
