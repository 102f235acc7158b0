"""Bundles between the blocks of a list (docs/develop/engine.md, "A list"); a strobe lasts a clock."""

from oscar_hdl.nic.ports import COUNT_BITS, ENTRIES_LOG2, PEER_BITS
from oscar_hdl.streams.bundles import Bundle, bit, word

EVENT_BITS = 6
NAME_BITS = PEER_BITS + 8 + 16 + 16  # of a frame: peer, sub, chunk, step, the first one highest
# A RECEIVE's need: nothing; that its gate's own values are made; that its gate has ended; it has no gate.
COUNTS, OWN, AFTER, NO_GATE = range(4)
ARM_RECEIVE, ARM_SEND, COUNT, START, END, BACK, MADE, MAY = range(8)  # updates
ARMED, UNDER_WAY, ENDED = 1, 2, 3  # states of an entry; 0 before it was armed
BAD_COMMAND, BAD_TRIGGER, FAILED, MISCOUNTED, BAD_FLOATS = 1, 2, 3, 4, 5  # how a list ended, or ERROR_ABORTED


class TrackerUpdate:
    """Something happened to an entry; fields hold from valid until taken (strobe)."""

    def __init__(self, *, arms: bool = False) -> None:
        self.valid, self.taken = bit(), bit()
        self.what, self.entry = word(3), word(ENTRIES_LOG2)
        if arms:  # what an entry that is armed waits for
            self.events, self.values = word(EVENT_BITS), word(COUNT_BITS)


class TrackerLook(Bundle):
    """What an entry is; eight clocks behind a change of `at`, or of the entry."""

    at, state, events = word(ENTRIES_LOG2), word(2), word(EVENT_BITS)
    left = word(COUNT_BITS)  # values that are still to be made


class TrackerStatus(Bundle):
    """What the tracker says of the whole list."""

    clear = bit()  # strobe: forget the list before; no update is under way
    quiet = bit()  # level: all updates so far are in over and wrong
    over = bit()  # level: as many commands have ended as were armed
    wrong, entry = bit(), word(ENTRIES_LOG2)  # level until clear; of which entry


class FiredEntry(Bundle):
    """A SEND that may start."""

    put, entry = bit(), word(ENTRIES_LOG2)  # strobe


class ListRun(Bundle):
    """A list from its command to its end."""

    go, entries = bit(), word(ENTRIES_LOG2 + 1)  # strobe; how many, hold until the end
    started, refused = bit(), bit()  # strobes: the answer
    wrong, error, entry = bit(), word(2), word(ENTRIES_LOG2)  # strobe: is not run, and why
    active = bit()  # level: all is armed, commands are given
    stop = bit()  # level: no other command is to be given
    idle = bit()  # level: command_list gives nothing; it rises a clock late
    running = bit()  # level: from go to the end
    looking = bit()  # level: frame_finder has something to end


class ListedCommand(Bundle):
    """A command of the list on its way into a command_port."""

    first, second = word(64), word(64)  # words of its entry: frame and shape; tables and order
    issue_receive, issue_send = bit(), bit()  # strobes
    trial = bit()  # level: what is issued is judged, and does not start
    receive_open, send_open = bit(), bit()  # levels: no command waits there
    judged, bad = bit(), bit()  # strobe: of the trial; with it


class ArmedReceive(Bundle):
    """A RECEIVE for frame_finder to look for; fields hold for a clock."""

    put, entry, name = bit(), word(ENTRIES_LOG2), word(NAME_BITS)  # strobe
    open = bit()  # it waits; of a SEND not, which takes the place of an entry of the list before
    gate, need = word(ENTRIES_LOG2), word(2)


class FoundEntry(Bundle):
    """The RECEIVE whose frame is there: from valid until given (strobe)."""

    valid, given, entry = bit(), bit(), word(ENTRIES_LOG2)
    # Strobes: it was another frame, the command is to be aborted; it has ended, the entry waits again.
    aborts, returned = bit(), bit()


class FinderLinks(Bundle):
    """What frame_finder and the other blocks of a list say to each other."""

    armed, found, gate = ArmedReceive(), FoundEntry(), TrackerLook()


class StartedEntry:
    """An entry whose command was given."""

    def __init__(self, *, receive: bool) -> None:
        self.put, self.entry = bit(), word(ENTRIES_LOG2)  # strobe
        if receive:  # it may count for a gate at its end
            self.gate, self.counts = word(ENTRIES_LOG2), bit()


class EndedEntries(Bundle):
    """What becomes of entries of a direction whose commands ended otherwise than well; strobes."""

    failed, entry = bit(), word(ENTRIES_LOG2)
    returned = bit()  # one that was aborted is armed again
    quiet = bit()  # level: all ends so far have been told


class ListRegisters(Bundle):
    """What registers say to a list, and are told."""

    issue, order, abort = bit(), word(32), bit()  # strobe with LIST_COMMAND; strobe
    busy = bit()  # level: a command is under way, or waits
    result, show = word(32), TrackerLook()  # LIST_RESULT, ENTRY_STATE
    ended, refused, bad_packet = bit(), bit(), bit()  # strobes
    bad_floats = bit()  # strobe: a packet of rows had NaN or Inf
