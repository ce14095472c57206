"""A replica of three is struck by a fault, whatever it is doing at that moment."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faults import acts
from group import SECRET
from ports import ipc_port, tcp_port

import zcoll
from zcoll.launchers.settings import Liveness
from zcoll.transport.ipc import path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faults.puppets import Nursery, Puppet

SIZE = 3


@dataclass(frozen=True)
class Way:
    """How the replicas of a group meet, and how soon silence means loss.

    Attributes:
        name: ``ipc`` or ``tcp``.
        liveness: The times.
    """

    name: str
    liveness: Liveness

    @property
    def secret(self) -> str | None:
        """The group's secret; TCP needs one."""
        return SECRET if self.name == "tcp" else None

    @property
    def bound_of_death(self) -> float:
        """Seconds in which a killed process must be missed."""
        return 1 + (self.liveness.reconnect_window if self.name == "tcp" else 0)

    @property
    def bound_of_silence(self) -> float:
        """Seconds in which a stopped process must be missed."""
        live = self.liveness
        return live.heartbeat_interval + live.heartbeat_timeout + live.reconnect_window

    def bound(self, number: int) -> float:
        """Seconds in which a process must be missed that got this signal."""
        return (
            self.bound_of_silence if number == signal.SIGSTOP else self.bound_of_death
        )

    @contextlib.contextmanager
    def port(self) -> Iterator[int]:
        """A port for one group."""
        if self.secret:
            yield tcp_port()
            return
        with ipc_port() as port:
            yield port
            path = path_of(port)  # a rank 0 that was killed has left its files
            for left in (path, path.with_name(f"{port}.lock")):
                left.unlink(missing_ok=True)


class Group:
    """Puppets that are, or are to be, the replicas of a group."""

    def __init__(self, way: Way, port: int, puppets: list[Puppet], **tuning: Any):
        self.way = way
        self.port = port
        self.puppets = puppets
        self.tuning = {**way.liveness._asdict(), **tuning}

    def tell_to_join(self, rank: int, puppet: Puppet | None = None) -> Puppet:
        """Let a process come in, but do not wait for it."""
        one = self.puppets[rank] if puppet is None else puppet
        size, secret = len(self.puppets), self.way.secret
        one.tell(acts.join, self.port, rank, size, secret, self.tuning)
        return one

    def join(self) -> None:
        """Let all come in."""
        for rank in range(len(self.puppets)):
            self.tell_to_join(rank)
        self.finish()

    def do(self, act: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Let all do something, and give what comes of it by rank."""
        for puppet in self.puppets:
            puppet.tell(act, *arguments)
        return self.finish()

    def finish(self) -> list[Any]:
        """Wait until all have done what they do."""
        return [puppet.expect("ended").value for puppet in self.puppets]


@contextlib.contextmanager
def group_of(
    nursery: Nursery, way: Way, size: int = SIZE, *, joined: bool = True, **tuning: Any
) -> Iterator[Group]:
    """Make processes, and a group of them."""
    with way.port() as port, nursery.puppets(size) as puppets:
        group = Group(way, port, list(puppets), **tuning)
        if joined:
            group.join()
        yield group


@dataclass(frozen=True)
class Strike:
    """What strikes whom.

    Attributes:
        group: The group.
        victim: The rank that is struck.
        number: The signal.
        nbytes: The size of a large array.
    """

    group: Group
    victim: int
    number: int
    nbytes: int

    @property
    def target(self) -> Puppet:
        """Who is struck."""
        return self.group.puppets[self.victim]

    @property
    def survivors(self) -> list[Puppet]:
        """The others."""
        return [p for p in self.group.puppets if p is not self.target]

    def now(self) -> float:
        """Strike, and give the time."""
        return self.target.signal(self.number)

    def others_wait(self) -> None:
        """Let the others wait in a call."""
        for puppet in self.survivors:
            puppet.tell(acts.until_lost, acts.announced, acts.barrier)
            puppet.expect("waiting")


def _idle(strike: Strike) -> float:
    strike.others_wait()
    return strike.now()


def _computing(strike: Strike) -> float:
    strike.target.tell(acts.compute)
    strike.target.expect("computing")
    strike.others_wait()
    return strike.now()


def _waiting(strike: Strike) -> float:
    early, late = strike.survivors
    for puppet in (strike.target, early):
        puppet.tell(acts.until_lost, acts.announced, acts.allreduce, 1)
        puppet.expect("waiting")
    at = strike.now()
    late.tell(acts.until_lost, acts.allreduce, 1)
    return at


def _sending(strike: Strike) -> float:
    return _in_array(strike, acts.fault_when_sending)


def _receiving(strike: Strike) -> float:
    return _in_array(strike, acts.fault_when_receiving)


def _in_array(strike: Strike, prepare: Callable[[int], None]) -> float:
    strike.target.do(prepare, strike.number)
    for puppet in strike.group.puppets:
        puppet.tell(acts.until_lost, acts.reduce_array, strike.nbytes)
    return strike.target.expect("struck").at


def _tearing_down(strike: Strike) -> float:
    early, _ = strike.survivors  # the other one only comes when all is over
    for puppet in (strike.target, early):
        puppet.tell(acts.announced, acts.teardown)
        puppet.expect("waiting")
    return strike.now()


# Each brings the victim into the phase and the others into a call, and strikes.
PHASES: dict[str, Callable[[Strike], float]] = {
    "idle": _idle,
    "computing": _computing,
    "waiting": _waiting,
    "sending": _sending,
    "receiving": _receiving,
    "tearing down": _tearing_down,
}


def seconds_until_all_know(strike: Strike, phase: str) -> float:
    """Strike, and check that every survivor is told whom it has lost.

    Returns:
        When the last one was told, in seconds from the fault.
    """
    at = PHASES[phase](strike)
    tearing_down = phase == "tearing down"
    witnesses = strike.survivors[:1] if tearing_down else strike.survivors
    told = [puppet.expect("failed") for puppet in witnesses]
    for news in told:
        check_loss(news.value, strike.victim, strike.target)
    texts = {str(news.value) for news in told}
    assert strike.victim == 0 or len(texts) == 1, texts
    if tearing_down:
        late = strike.survivors[1]  # it is told too; or it knows, and only closes
        late.tell(acts.teardown)
        late.expect_end()
    else:
        for puppet, news in zip(witnesses, told, strict=True):
            puppet.tell(acts.barrier)
            later = puppet.expect("failed").value
            assert str(later) == str(news.value)
    return max(news.at for news in told) - at


def check_loss(error: BaseException, rank: int, puppet: Puppet) -> None:
    """Check that an error says all about a replica that is lost."""
    assert isinstance(error, zcoll.ReplicaLostError), repr(error)
    assert (error.rank, error.pid) == (rank, puppet.pid), str(error)
    assert error.host
    assert f"replica {rank} ({error.host}, pid {error.pid}) is lost" in str(error)
    assert "last heard of" in str(error)
    if rank:  # rank 0's calls are its own affair
        assert "its last call was" in str(error)


def check_latecomer(strike: Strike, phase: str) -> None:
    """Let a stopped replica go on, and check that it learns that it was given up."""
    strike.target.signal(signal.SIGCONT)
    if phase in ("idle", "computing"):
        if phase == "computing":
            strike.target.expect("ended")
        strike.target.tell(acts.until_lost, acts.barrier)
    error = strike.target.expect("failed").value
    assert isinstance(error, zcoll.ReplicaLostError), repr(error)
    if strike.victim and phase != "tearing down":  # after it rank 0 may be gone too
        assert error.rank == strike.victim, str(error)
