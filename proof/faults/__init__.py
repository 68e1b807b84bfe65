"""All faults, by the names that people would give them. `schedule` says when, `nemesis` does it.

scene       whom they strike: the stage and the fleet
clients     kill, pause, fork, cancel, interrupt
servers     kill and pause the lock server and the database, promote the standby
network     cut, deaf, half an answer, lost answers, delays, refused
partition   one client without a network (namespaces)
clocks      a client's jumps or runs at another rate; the database's is set
disks       fsync slow or failing, no room
power       what is on the disk when the power goes off
"""

from __future__ import annotations

from proof.faults.base import Act, Fault
from proof.faults.clients import (
    CancelClient,
    ForkClient,
    InterruptClient,
    KillClient,
    PauseClient,
)
from proof.faults.clocks import ClientClockJump, ClientClockRate, DatabaseClockStep
from proof.faults.disks import FailingFsync, FullDisk, SlowFsync
from proof.faults.network import (
    CutConnections,
    DeafNetwork,
    Delays,
    HalfAnAnswer,
    LostAnswers,
    RefuseConnections,
)
from proof.faults.partition import PartitionClient
from proof.faults.power import PowerCut
from proof.faults.scene import NobodyLeft, NotHealthy, Scene
from proof.faults.servers import (
    KillDatabase,
    KillLockServer,
    PauseDatabase,
    PauseLockServer,
    PromoteStandby,
)

ALL: tuple[Fault, ...] = (
    KillClient(),
    PauseClient(),
    ForkClient(),
    CancelClient(),
    InterruptClient(),
    KillLockServer(),
    PauseLockServer(),
    KillDatabase(),
    PauseDatabase(),
    PromoteStandby(),
    CutConnections(),
    DeafNetwork(),
    HalfAnAnswer(),
    LostAnswers(),
    Delays(),
    RefuseConnections(),
    PartitionClient(),
    ClientClockJump(),
    ClientClockRate(),
    DatabaseClockStep(),
    SlowFsync(),
    FailingFsync(),
    FullDisk(),
    PowerCut(),
)

__all__ = ["ALL", "Act", "Fault", "NobodyLeft", "NotHealthy", "Scene"]
