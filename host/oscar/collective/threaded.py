"""A rank's actions with its coding in threads: frames of different links are coded at the same time.

An encoder's frames are coded in order, and so are a decoder's, because their tables learn. What is added to a
sub-frame is added in order, too. All else is independent. So a task, which codes one frame, waits for the
task before it at the same link end and for the one before it at the same sub-frame, and for no other. The
caller's thread sends, receives, and does the passes over sums that are final.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any

from oscar.collective.actions import Action, Op
from oscar.collective.executor import TransportEnd
from oscar.collective.frames import FrameLog
from oscar.collective.node import CODES, Node
from oscar.cores import at_most, submit, threads_for

LEAST_VALUES = 1 << 16  # of a frame that is worth a task: some 50 us to code, where a task takes 10 to start
GLANCE_S = 0.001  # between looks for frames that arrive while frames are coded that others wait for


class _Task:
    """A frame to code, and what waits for that."""

    def __init__(self, place: int, action: Action) -> None:
        self.place, self.action = place, action  # place: in the program
        self.due = 0  # tasks before it that are not done
        self.next: list[_Task] = []
        self.done = threading.Event()
        self.begun = False
        self.error: BaseException | None = None

    def __lt__(self, other: _Task) -> bool:
        return self.place < other.place


class _Coding:
    """Codes the frames of `node` in up to `threads` threads."""

    def __init__(self, node: Node, threads: int) -> None:
        self._node, self._free = node, threads
        self._lock, self._added = threading.Lock(), 0
        self._ready: list[_Task] = []  # a heap: the first of the program is the first to be done
        self._last: dict[Hashable, _Task] = {}  # by link end and by sub-frame
        self._tasks: deque[_Task] = deque()  # in order, without those that are noted

    def add(self, action: Action) -> _Task:
        """Code the frame of `action` once what it needs is there; return its task."""
        self._added += 1
        task, keys = _Task(self._added, action), (self._node.end_of(action), (action.chunk, action.sub))
        with self._lock:
            for key in keys:
                before = self._last.get(key)
                if before is not None and not before.done.is_set():
                    before.next.append(task)
                    task.due += 1
                elif before is not None and before.error is not None:
                    task.error = before.error
                self._last[key] = task
            self._tasks.append(task)
            if not task.due:
                heappush(self._ready, task)
                self._call_threads(1)
        return task

    def _call_threads(self, tasks: int) -> None:
        """Start up to `tasks` idle threads. The caller holds the lock."""
        for _ in range(min(self._free, tasks)):
            submit(self._work)
            self._free -= 1

    def _work(self) -> None:
        """Do tasks in this thread until none is ready."""
        while True:
            with self._lock:
                if not self._ready:
                    self._free += 1
                    return
                task = heappop(self._ready)
                task.begun = True
                # A task that is alone has idle threads for its frame, if that is long enough for them.
                most = threads_for(self._node.count(task.action), 1 + self._free)
                helpers = 0 if self._ready else most - 1
                self._free -= helpers
            if task.error is None:
                try:
                    with at_most(1 + helpers):
                        self._node.code(task.action)
                except BaseException as error:  # raised where it is waited for
                    task.error = error
            with self._lock:
                self._free += helpers
                task.done.set()
                for after in task.next:
                    after.error = after.error or task.error
                    after.due -= 1
                    if not after.due and not after.done.is_set():
                        heappush(self._ready, after)
                with suppress(RuntimeError):  # no new threads as the process ends: this one does all
                    self._call_threads(len(self._ready) - 1)

    def note(self) -> None:
        """Tell the node of frames that are coded, in order; raise the first error."""
        while self._tasks and self._tasks[0].done.is_set():
            task = self._tasks.popleft()
            if task.error is not None:
                raise task.error
            self._node.note(task.action)

    def finish(self) -> None:
        """Wait for all frames; raise the first error."""
        while self._tasks:
            self._tasks[0].done.wait()
            self.note()

    def stop(self) -> None:
        """Drop tasks that no thread has begun, and wait for the others: the arrays are the caller's again."""
        with self._lock:
            self._ready.clear()
            for task in self._tasks:
                if not task.begun:
                    task.error = task.error or RuntimeError("an action before this one failed")
                    task.done.set()
        for task in self._tasks:
            task.done.wait()


class _Outbox:
    """Frames to send in order, once they are coded."""

    def __init__(self, node: Node, port: TransportEnd, log: FrameLog) -> None:
        self._node, self._port, self._log = node, port, log
        self._frames: deque[tuple[Action, Any]] = deque()  # with a task, or a frame that is passed on

    def __bool__(self) -> bool:
        return bool(self._frames)

    def add(self, action: Action, frame: Any) -> None:
        """Send `frame` in its turn: a task, or a frame that is passed on."""
        self._frames.append((action, frame))

    def unready(self) -> _Task | None:
        """Return the task that the next frame waits for, if any."""
        task = self._frames[0][1] if self._frames else None
        return task if isinstance(task, _Task) and not task.done.is_set() else None

    def send(self) -> bool:
        """Send what is coded; return whether there was anything. Raises the error of a frame's task."""
        before, node = len(self._frames), self._node
        while self._frames and not self.unready():
            action, frame = self._frames.popleft()
            if isinstance(frame, _Task):
                if frame.error is not None:
                    raise frame.error
                frame = node.code(action)
            self._log.add(action, node.rank, len(frame), node.count(action), node.coding_work(action))
            self._port.post_send(action.peer, action.tag, frame)
        return len(self._frames) < before


def worthwhile(node: Node, threads: int) -> bool:
    """Whether coding in threads pays: several links, and frames that are long enough.

    Sums that are stored apart are read while others arrive; their schedules have one link for each direction.
    """
    frames = (len(node.layout.bounds) - 1) * node.layout.subframes
    return (
        threads > 1
        and node.nodes > 2
        and node.codec.parallel
        and not node.apart
        and node.local.size >= LEAST_VALUES * frames
    )


def perform(
    node: Node,
    actions: Iterable[Action],
    port: TransportEnd,
    log: FrameLog,
    wait: Callable[..., Any],
    threads: int,
    meanwhile: Callable[[], bool] | None = None,
) -> None:
    """Perform `actions` on `node` as `executor.execute` does, with up to `threads` threads that code.

    Args:
        node: The rank's values and link ends.
        actions: Its program.
        port: Its end of the transport; only the caller's thread uses it.
        log: Gets a row for every frame that is sent.
        wait: Returns the frame of a WAIT. It calls `work` while none has come, and looks again at once where
            that returned True.
        threads: Most threads that code.
        meanwhile: Something else to do in such a wait, a little at each call.
    """
    coding, outbox = _Coding(node, threads), _Outbox(node, port, log)
    coded: dict[Hashable, _Task] = {}

    def work() -> bool:
        """Do something while a frame is due: others may wait for what is still to be sent."""
        if outbox.send():
            return True
        coding.note()
        if meanwhile is not None and meanwhile():
            return True
        if task := outbox.unready():
            task.done.wait(GLANCE_S)
        return bool(outbox)

    try:
        for action in actions:
            if node.count(action) == 0:
                continue
            if action.op is Op.POST_RECV:
                port.post_recv(action.peer, action.tag, node.cap(action))
            elif action.op is Op.WAIT:
                node.receive(action, wait(action, work=work))
            elif action.op in CODES:
                coded[node.frame_key(action)] = coding.add(action)
            elif action.op is Op.SEND:
                outbox.add(action, coded[node.frame_key(action)])
            else:  # passed on, before it is decoded
                outbox.add(action, node.code(action))
            outbox.send()
        while outbox:
            if task := outbox.unready():
                task.done.wait()
            outbox.send()
        coding.finish()
    finally:
        coding.stop()
