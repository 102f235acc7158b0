"""When gradients become ready, read from traces: torch.profiler's (Chrome JSON) and Chakra's (JSON forms)."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from oscar.coding.costs import is_number
from oscar.errors import ConfigError
from oscar.planning.tuning.profile import ReadyTimes, Tensors, load_profile

GRADIENT = "torch::autograd::AccumulateGrad"
ENGINE = "autograd::engine::evaluate_function: "
LINKED = "link it with the profiler's trace (chakra_trace_link), or give the profiler's trace itself"
RECORD = "record the forward pass and loss.backward() of whole iterations"


def read_times(path: Path, tensors: Tensors) -> ReadyTimes:
    """Return the ready times in a profile or a trace, for these tensors; in the order of the backward pass.

    Raises ConfigError for what is neither, for one of another model, and for a trace without a backward pass.
    """
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path}: expected a profile or a trace, got {error}") from None
    try:
        if raw.lstrip()[:1] != b"{" and min(raw[:64], default=9) >= 9:  # protobuf has lower ones
            result = load_profile(path)
            result.check(tensors)
            return result
        return _of_events(_events(raw), tensors, f"trace {path.name}")
    except ConfigError as error:
        text = str(error)
        raise ConfigError(text if text.startswith(str(path)) else f"{path}: {text}") from None


class _Event(NamedTuple):
    """Work on the host, in us. sequence: of an operation whose gradient is wanted, else -1."""

    start: float
    end: float
    name: str
    sequence: int
    dims: Any


@dataclass(frozen=True)
class _Work:
    """What a device does: when the host launched it, and when it began and was done with all before."""

    launched: list[float]
    began: list[float]
    done: list[float]

    def begin(self, us: float) -> float:
        """Return when the first work begins that is launched from now on; without a device, now."""
        at = bisect_left(self.launched, us)
        return self.began[at] if at < len(self.began) else us

    def end(self, us: float) -> float:
        """Return when all is done that was launched until now, not before now."""
        at = bisect_right(self.launched, us)
        return max(us, self.done[at - 1]) if at else us


def _events(raw: bytes) -> tuple[list[_Event], _Work]:
    try:
        trees = list(_documents(raw.decode()))
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"expected JSON, got {error}; protobuf is not read: make it JSON (chakra_jsonizer)"
        ) from None
    try:
        first = trees[0]
        if "traceEvents" in first:
            result = _chrome(first["traceEvents"])
        elif "nodes" in first:
            result = _linked(first["nodes"]), _Work([], [], [])
        else:
            result = _converted(trees[1:] if "name" not in first else trees), _Work([], [], [])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"expected a trace of torch.profiler or of Chakra, got something else ({error!r})"
        ) from None
    return sorted(result[0]), result[1]


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """Yield JSON objects that stand one after another, as chakra_jsonizer writes them."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        tree, at = decoder.raw_decode(text, at)
        if not isinstance(tree, dict):
            raise ValueError(f"{type(tree).__name__} for an object")
        yield tree


def _chrome(rows: Iterable[Mapping[str, Any]]) -> tuple[list[_Event], _Work]:
    """Return what the host did, and what the device did for it (by the number of the launch)."""
    events, launches, kernels = [], {}, []
    for row in rows:
        if row.get("ph") != "X":
            continue
        args = row.get("args") or {}
        category = str(row.get("cat", "")).lower()
        if category in ("cpu_op", "operator"):
            sequence = args.get("Sequence number", -1)
            events.append(_event(row["name"], row["ts"], row["dur"], sequence, args.get("Input Dims")))
        elif category in ("cuda_runtime", "cuda_driver"):
            launches[args.get("correlation")] = _us(row["ts"])
        elif category in ("kernel", "gpu_memcpy", "gpu_memset"):
            kernels.append((args.get("correlation"), _us(row["ts"]), _us(row["ts"]) + _us(row["dur"])))
    work = sorted((launches[at], begin, end) for at, begin, end in kernels if at in launches)
    done, ends = -math.inf, []
    for _, _, end in work:
        done = max(done, end)
        ends.append(done)
    return events, _Work([one[0] for one in work], [one[1] for one in work], ends)


def _linked(nodes: Iterable[Mapping[str, Any]]) -> list[_Event]:
    """Return the operations of PyTorch's execution trace, with times if it was linked."""
    events = []
    for node in nodes:
        if "cat" in node:
            raise ConfigError(
                f"expected a Chakra trace of a CPU, got {node['name']} on a device, whose time linking does "
                "not keep; give the profiler's trace instead"
            )
        if "ts" in node:
            attributes = {one["name"]: one["value"] for one in node["attrs"]}
            sequence, shapes = attributes.get("seq_id", -1), node["inputs"]["shapes"]
            events.append(_event(node["name"], node["ts"], node["inclusive_dur"], sequence, shapes))
    if not events:
        raise ConfigError(f"expected a Chakra trace with times, got PyTorch's, which has none; {LINKED}")
    return events


def _converted(nodes: Iterable[Mapping[str, Any]]) -> list[_Event]:
    """Return the operations of Chakra's protobuf made JSON: zeros are left out, 64 bits are text."""
    rows = list(nodes)
    if not any("startTimeMicros" in node for node in rows):
        raise ConfigError(
            f"expected a Chakra trace with startTimeMicros, got none in {len(rows)} nodes; {LINKED}"
        )
    events = []
    for node in rows:
        own = [one.get("int64Val", 0) for one in node.get("attr", ()) if one.get("name") == "seq_id"]
        shapes = json.loads(node.get("inputs", {}).get("shapes", "null") or "null")
        start, took = (float(node.get(name, 0)) for name in ("startTimeMicros", "durationMicros"))
        events.append(_event(node["name"], start, took, own[0] if own else -1, shapes))
    return events


def _event(name: Any, start: Any, took: Any, sequence: Any, dims: Any) -> _Event:
    begin, seconds = _us(start), _us(took)
    if seconds < 0:
        raise ConfigError(f"expected durations of 0 or more, got {seconds:g} us of {name}; record it again")
    return _Event(begin, begin + seconds, str(name), int(sequence), json.dumps(dims))


def _us(value: Any) -> float:
    if not is_number(value):
        raise TypeError(f"{value!r} for a time")
    return float(value)


def _of_events(trace: tuple[list[_Event], _Work], tensors: Tensors, made: str) -> ReadyTimes:
    """Return the medians over the iterations of a trace; the first of three or more is not counted."""
    events, work = trace
    iterations = list(_iterations(events))
    if not any(gradients for _, _, gradients in iterations):
        raise ConfigError(f"expected a trace with a backward pass ({GRADIENT}), got none; {RECORD}")
    whole = [one for one in iterations if len(one[2]) == len(tensors)]
    if not whole or not all(math.isfinite(begin) for begin, _, _ in whole):
        counts = sorted({len(gradients) for _, _, gradients in iterations})
        given = f"{counts} a pass" if not whole else "no forward pass before them"
        raise ConfigError(f"expected a backward pass of {len(tensors)} gradients, got {given}; {RECORD}")
    rows, forward = [], []
    for begin, backward, gradients in whole[1:] if len(whole) > 2 else whole:
        start = work.begin(begin)
        ready = {at: work.end(event.end) - start for at, event in _placed(gradients, tensors)}
        rows.append([ready[at] * 1e-6 for at in range(len(tensors))])
        forward.append(max(0.0, work.begin(backward) - start) * 1e-6)
    return ReadyTimes.median(tensors, rows, forward, f"{made}, median of {len(rows)} iterations", {})


def _iterations(events: Iterable[_Event]) -> Iterator[tuple[float, float, list[_Event]]]:
    """Yield when each iteration's forward and backward pass begin, and its gradients.

    A forward pass begins with the first operation whose gradient is wanted, after a backward pass; what a
    backward pass calls itself (a checkpoint's forward pass) is none.
    """
    begin = backward = busy = -math.inf
    gradients: list[_Event] = []
    for event in events:
        if event.name.startswith(ENGINE) or event.name == GRADIENT:
            backward = event.start if math.isinf(backward) else backward
            busy = max(busy, event.end)
            gradients += [event] if event.name == GRADIENT else []
        elif event.sequence >= 0 and event.start >= busy:
            if gradients:
                yield begin, backward, gradients
                begin, backward, gradients = event.start, -math.inf, []
            begin = event.start if math.isinf(begin) else begin
    if gradients:
        yield begin, backward, gradients


def _placed(gradients: list[_Event], tensors: Tensors) -> Iterator[tuple[int, _Event]]:
    """Yield the tensor of each gradient: the first of as many values that has none; without shapes, the next.

    A trace has no names. Layers give their gradients in the order of the backward pass, and those of one
    layer, which come in any order, rarely have equal sizes.
    """
    shapes = [json.loads(event.dims) for event in gradients]
    left = list(range(len(tensors)))
    for number, (event, shape) in enumerate(zip(gradients, shapes, strict=True)):
        if not all(shapes):
            yield number, event
            continue
        size = math.prod(shape[0])
        at = next((at for at in left if tensors[at][1] == size), None)
        if at is None:
            raise ConfigError(
                f"expected a trace of this model, got {size} values for gradient {number}, which no tensor "
                "that is left has"
            )
        left.remove(at)
        yield at, event
