"""Rows: calls that go wrong, and programs that end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from faults import acts, acts_errors
from faults.measured.row import Row
from faults.phases import Group, Strike, Way, group_of

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faults.puppets import News, Nursery

ROUND_TRIP = 0.25  # seconds, at most, on a machine that does other things too
EXIT_BOUND = 2.0


def mismatch(nursery: Nursery, way: Way) -> float:
    """Let one replica call something else."""
    with group_of(nursery, way) as group:
        for puppet in group.puppets[:2]:
            puppet.tell(acts.announced, acts.barrier)
            puppet.expect("waiting")
        *_, odd = group.puppets
        at = odd.do(acts.now)
        odd.tell(acts_errors.broadcast, 1, 0)
        told = [puppet.expect("failed") for puppet in group.puppets]
        texts = {str(news.value) for news in told}
        assert len(texts) == 1, texts
        assert all(isinstance(news.value, zcoll.MismatchError) for news in told)
    return max(news.at for news in told) - at


def one_call(
    nursery: Nursery,
    way: Way,
    *,
    act: Callable[..., Any],
    arguments: tuple[Any, ...],
    expected: type[Exception],
    failing: set[int],
) -> float:
    """Let a call fail on some replicas, and make another one that does not."""
    with group_of(nursery, way) as group:
        group.do(acts.barrier)
        *others, last = group.puppets
        for puppet in others:
            puppet.tell(acts.announced, act, *arguments)
            puppet.expect("waiting")
        at = last.do(acts.now)
        last.tell(act, *arguments)
        ended = [puppet.expect_end() for puppet in group.puppets]
        for rank, news in enumerate(ended):
            _check_end(news, expected if rank in failing else None)
        assert group.do(acts.allreduce, 1) == [3, 3, 3]
    return max(news.at for news in ended) - at


def _check_end(news: News, expected: type[Exception] | None) -> None:
    if expected is None:
        assert news.name == "ended", repr(news.value)
    else:
        assert isinstance(news.value, expected), repr(news.value)


def program_ends(nursery: Nursery, way: Way, *, victim: int, text: str | None) -> float:
    """Let a program end without teardown, while the others wait for it."""
    with group_of(nursery, way) as group:
        strike = Strike(group, victim, 0, 0)
        _deliver(group, strike)
        strike.others_wait()
        at = strike.target.do(acts.now)
        if text is None:
            strike.target.tell(acts.leave, caught=False)
        else:
            strike.target.tell(acts.fail, text, caught=False)
        told = [puppet.expect("failed") for puppet in strike.survivors]
        for news in told:
            assert isinstance(news.value, zcoll.ReplicaExitedError), repr(news.value)
            assert (text or "") in news.value.reason
            assert news.value.rank == victim
    return max(news.at for news in told) - at


def _deliver(group: Group, strike: Strike) -> None:
    """Have a call made that the others only see the end of later."""
    strike.target.do(acts.send, 1)
    for puppet in strike.survivors:
        puppet.tell(acts.allreduce, 1)
    for puppet in strike.survivors:
        assert puppet.expect("ended").value == len(group.puppets)


def rows() -> Iterator[Row]:
    """All rows of this module."""
    yield Row(
        key="mismatch",
        fault="replicas call different things",
        answer="`MismatchError` everywhere, with who called what where",
        bound=lambda _: ROUND_TRIP,
        measure=mismatch,
    )
    everybody = {0, 1, 2}
    yield _call("reduce-raises", "the reduce function raises", "`ReduceError`")(
        act=acts_errors.reduce_badly,
        arguments=(),
        expected=zcoll.ReduceError,
        failing=everybody,
    )
    yield _call("not-picklable", "a value cannot be pickled", "`EncodeError`")(
        act=acts_errors.allreduce_picky,
        arguments=(1,),
        expected=zcoll.EncodeError,
        failing=everybody,
    )
    yield _call(
        "not-unpicklable",
        "a result cannot be unpickled on one replica",
        "`DecodeError`",
        "there",
    )(
        act=acts_errors.broadcast_local,
        arguments=(1,),
        expected=zcoll.DecodeError,
        failing={1},
    )
    for victim, who in ((1, "replica"), (0, "rank 0")):
        for text, how in ((None, "exit"), ("the disk is full", "exception")):
            yield Row(
                key=f"{who} {how}".replace(" ", "-"),
                fault=f"{who}: {how} without teardown",
                answer="what it sent counts; then `ReplicaExitedError`"
                + (" with the reason" if text else ""),
                bound=lambda _: EXIT_BOUND,
                measure=partial(program_ends, victim=victim, text=text),
            )


def _call(
    key: str, fault: str, error: str, where: str = "everywhere"
) -> Callable[..., Row]:
    def make(**options: Any) -> Row:
        return Row(
            key=key,
            fault=fault,
            answer=f"{error} {where}; the next call works",
            bound=lambda _: ROUND_TRIP,
            measure=partial(one_call, **options),
        )

    return make
