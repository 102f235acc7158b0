"""The end of communicators: closed by hand, or left to the end of their process, which never aborts."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

from needs import needs
from oscar.config import Config
from oscar.errors import OscarError, PeerError
from oscar.reducers.communicator import Communicator
from oscar.transports.threads import ThreadTransport, local_transports
from oscar_lab.lab.launch import launch
from oscar_lab.trials import endings
from support.ranks import on_ranks

EXTRAS = {"tcp communicator": "torch", "tcp state": "torch", "mpi communicator": "mpi"}
GIVEN = [np.ones(50, np.float32)]


@pytest.mark.parametrize("what", endings.KINDS)
def test_processes_that_give_nothing_back_end_with_status_0(what: str) -> None:
    needs(EXTRAS[what])
    found, output = endings.end(what, 2, 3, seed=0)
    assert found == [0] * 6, output


def test_a_closed_communicator_says_so_and_may_be_closed_again() -> None:
    def work(transport: ThreadTransport) -> None:
        with Communicator(Config(), transport, timeout_s=20) as communicator:
            communicator.allreduce(GIVEN)
            transport.part(time.monotonic() + 20)  # a thread's close is its death
        communicator.close()
        state = communicator.state_dict()
        for use in (
            lambda: communicator.allreduce(GIVEN),
            lambda: communicator.gather(b"x", 1),
            lambda: Communicator(Config(), transport),
        ):
            with pytest.raises(OscarError, match="this communicator is closed; make a new one, and its tran"):
                use()
        communicator.load_state_dict(state)

    assert on_ranks(local_transports(2), work) == [None, None]


def test_a_wait_ends_when_the_transport_is_closed_beside_it() -> None:
    (one, two), found = local_transports(2), []

    def wait() -> None:
        try:
            Communicator(Config(), one, timeout_s=20)
        except PeerError as error:
            found.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    one.close()
    thread.join(30)
    assert not thread.is_alive()
    assert "this transport is closed; make a new one on every rank" in found[0]
    assert not two.closed


def test_a_transport_that_nobody_holds_is_closed() -> None:
    ends = local_transports(2)
    gone = weakref.ref(ends[1])
    assert gone().rank == 1  # type: ignore[union-attr]
    del ends[1]
    gc.collect()
    assert gone() is None
    with pytest.raises(PeerError, match=r"rank 1 died \(its thread has closed the transport\)"):
        Communicator(Config(), ends[0], timeout_s=20)


DROPPED = """
import queue, threading, time
from oscar.adapters.torch.jobs import start_thread

class State:
    def perform(self, job):
        job.set()
        time.sleep(0.2)

    def __del__(self):
        time.sleep(0.5)  # as a group of Gloo takes to end
        print("ended", flush=True)

began, jobs, state = threading.Event(), queue.Queue(), State()
start_thread(state, jobs)
jobs.put(began)
began.wait()
del state
"""


def test_a_process_waits_for_a_state_that_its_own_thread_tears_down() -> None:
    needs("torch")
    ended = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout) == (0, "ended\n"), ended.stderr


LEAVING = """
import os, sys, threading, time
from oscar.transports.base import GATHER_TAGS, TransportError
from oscar.transports.tcp import TcpTransport
end = TcpTransport()
end.gather(b"x", 16, time.monotonic() + 20, "the others")
if end.rank == 1:
    os._exit(0)
try:
    before = 1 if end.rank == 0 else 0
    end.post_recv(before, GATHER_TAGS[0], 16)
    end.wait(before, GATHER_TAGS[0], time.monotonic() + 20)
except TransportError as error:
    print(error.kind, flush=True)
if end.rank == 0:
    end.close()  # rank 2 is there, and waits for this
    print("left", sum(thread.name == "oscar-tcp" for thread in threading.enumerate()), flush=True)
"""


def test_a_close_leaves_no_thread_where_a_peer_has_gone() -> None:
    needs("torch")
    token = f"oscar-{time.monotonic_ns()}"
    ended = launch("tcp", 3, ["-c", LEAVING, token], limit_s=60, token=token)
    assert ended.status == 0, ended.output
    assert sorted(set(ended.output.splitlines()) & {"dead", "left 0"}) == ["dead", "left 0"], ended.output
