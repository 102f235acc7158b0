"""`oscar codec`: code an array, check that it comes back, and say what it cost."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oscar.cli.common import declare
from oscar.files import check_outputs, replacing

if TYPE_CHECKING:
    import numpy as np

    from oscar.coding.asc import AscParams
    from oscar.coding.codec import Codec

EXAMPLE = """\
  oscar codec gradients.npy                       ASC on a float or integer array
  oscar codec gradients.npy --all                 every codec beside it
  oscar codec gradients.npy -o gradients.oscar    keep what was coded
  oscar codec --decode gradients.oscar -o values.npy

Integers are coded as they are. Floats are quantised first, as one tensor (--coarseness, --bits, --scale);
fp32, bf16 and fp16 take them unquantised. Arrays of any shape are coded flat. The file of -o holds the frame
and what it takes to have the array back: codec, shape, dtype, the quantiser's step.
"""


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = declare(commands, "codec", run, short="code an array and say what it costs", example=EXAMPLE)
    parser.add_argument("file", metavar="FILE.npy", nargs="?", type=Path)
    parser.add_argument("--codec", default="asc", metavar="NAME", help="name of the codec (%(default)s)")
    parser.add_argument("--all", action="store_true", help="compare all codecs")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT", help="write the coded frame, or the decoded .npy"
    )
    parser.add_argument(
        "--decode", type=Path, metavar="FILE", help="decode a file of -o into --output instead"
    )
    parser.add_argument(
        "--reference", action="store_true", help="check ASC against its plain-integer reference"
    )
    asc = parser.add_argument_group("coding")
    asc.add_argument(
        "--context",
        default="class",
        choices=["class", "none"],
        help="how ASC chooses a table for a value (%(default)s)",
    )
    asc.add_argument("--classes", type=Path, metavar="FILE.npy", help="position class 0..15 of each value")
    asc.add_argument(
        "--step", type=int, default=0, metavar="S", help="AllReduce step in the header (%(default)s)"
    )
    asc.add_argument(
        "--nodes", type=int, metavar="N", help="values are sums over N nodes: sets the raw width"
    )
    floats = parser.add_argument_group("quantising floats")
    floats.add_argument(
        "--scale",
        default="sigma",
        choices=["sigma", "max"],
        help="statistic that sets the step (%(default)s)",
    )
    floats.add_argument(
        "--coarseness", type=float, default=0.125, metavar="C", help="step / sigma (%(default)s)"
    )
    floats.add_argument(
        "--bits",
        type=int,
        default=12,
        choices=range(8, 17),
        metavar="B",
        help="bits of an integer, 8 to 16 (%(default)s); larger values saturate",
    )


def run(args: argparse.Namespace) -> int:
    """Code or decode; return 1 when a lossless codec did not give the values back."""
    check_outputs([args.output], [args.file, args.decode, args.classes])
    if args.decode is not None:
        return _decode(args)
    if args.file is None:
        raise ValueError("give a FILE.npy to code, or --decode FILE -o OUT.npy")
    return _code(args)


def _code(args: argparse.Namespace) -> int:
    from oscar.coding.arrays import as_float32, load_array, load_classes, quantise, same_as_reference
    from oscar.numerics.quantiser import sum_width

    if args.all and args.output is not None:
        raise ValueError("--output keeps the frame of one codec; give --codec NAME instead of --all")
    if args.nodes is not None and args.nodes < 1:
        raise ValueError(f"--nodes: expected 1 or more, got {args.nodes}")
    array = load_array(args.file)
    flat = integers = floats = array.reshape(-1)
    exponent, rounded = None, False
    print(f"# {args.file}: {array.dtype} of shape {list(array.shape)}, coded flat; headers counted")
    if flat.dtype.kind == "f":
        integers, exponent, how = quantise(flat, args.scale, args.coarseness, args.bits)
        print(f"# {how}")
        floats, how, rounded = as_float32(flat)
        if how:
            print(f"# {how}")
    classes = load_classes(args.classes)
    width = None if args.nodes is None else sum_width(args.bits, args.nodes)
    given = {"step": args.step, "context": classes, "width": width, "stored": array.nbytes}
    given["rounded"] = rounded
    codec, frame, failed = _table(args, floats, integers, given)
    if args.reference:
        same, text = same_as_reference(_params(args.context), integers, classes, step=args.step, width=width)
        failed = failed or not same
        print(f"# {text}")
    if args.output is not None:
        coded = classes is not None and codec.uses_context
        _write(args, array, frame, classes=coded, exponent=None if codec.domain == "float" else exponent)
    return 1 if failed else 0


def _table(
    args: argparse.Namespace, floats: np.ndarray, integers: np.ndarray, given: dict[str, Any]
) -> tuple[Codec, bytes, bool]:
    """Print a line per codec; return the last one, the last frame, and whether one was not lossless."""
    from oscar.coding.arrays import TABLE, code
    from oscar.coding.registry import codec_names

    print(TABLE.heading)
    failed, frame = False, b""
    for name in codec_names() if args.all else (args.codec,):
        codec = _codec(name, args.context)
        if codec.domain == "float" and floats.dtype.kind != "f":
            if args.all:
                continue
            raise ValueError(f"{name} codes floats, {args.file} holds {floats.dtype}")
        values = floats if codec.domain == "float" else integers
        options = {**given, "rounded": given["rounded"] and codec.domain == "float"}
        result = code(name, codec, values, **options, lenient=args.all)
        failed |= not result.missing and result.lossless and not result.exact
        frame = result.frame or frame
        print(result.line())
    if not frame:
        raise ValueError(f"{args.file}: no codec takes it, for the reasons above")
    if args.all:
        cold = "cold tables" if given["context"] is not None else "cold tables, no position classes"
        print(f"# one frame, {cold}: what ASC learns over iterations shows in `oscar allreduce`")
    return codec, frame, failed


def _write(
    args: argparse.Namespace, array: np.ndarray, frame: bytes, *, classes: bool, exponent: int | None
) -> None:
    """Write the frame of `array`, and what it takes to have the array back."""
    from oscar.coding.arrays import ArrayFile

    about = ArrayFile(
        codec=args.codec,
        context=args.context,
        step=args.step,
        shape=list(array.shape),
        dtype=array.dtype.str,
        classes=classes,
        exponent=exponent,
    )
    with replacing(args.output) as file:
        file.write(about.pack(frame))
    print(f"# wrote {args.output}")


def _decode(args: argparse.Namespace) -> int:
    from oscar.coding.arrays import load_classes, read_array_file, save_array

    if args.output is None or args.file is not None:
        raise ValueError("--decode FILE takes -o OUT.npy, and no FILE.npy")
    about, frame = read_array_file(args.decode)
    if about.classes != (args.classes is not None):
        raise ValueError(
            f"{args.decode} was coded {'with' if about.classes else 'without'} position classes: "
            f"{'give them by --classes FILE.npy' if about.classes else 'leave out --classes'}"
        )
    codec, classes = _codec(about.codec, about.context), load_classes(args.classes)
    values = about.restore(codec.make_decoder().decode(frame, step=about.step, context=classes))
    save_array(args.output, values)
    print(f"# wrote {args.output}: {values.dtype} of shape {list(values.shape)}")
    return 0


def _params(context: Any) -> AscParams:
    from oscar.coding.asc import AscParams

    return AscParams(context=context)


def _codec(name: str, context: str) -> Codec:
    from oscar.coding.registry import make_codec

    return make_codec(name, asc=_params(context))
