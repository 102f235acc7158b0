"""The command line, from arguments to exit status, files and error lines."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from oscar import plugins, shipped
from oscar.cli import COMMANDS as RUNTIME_COMMANDS
from oscar.cli import build_parser, main
from oscar.cli.common import read_config
from oscar.cli.progress import COMPILING, compiling_said
from oscar.config import Config, load_config
from oscar.errors import REQUIRED
from oscar.planning.costs import method_cost
from oscar.timeline import nic

ROOT = Path(__file__).parents[2]
COMMANDS = (*RUNTIME_COMMANDS, *plugins.entries(plugins.COMMANDS))
TINY = """
nodes: 3
iterations: 4
workload:
  options: {vocabulary: 200, dimension: 8, hidden: 16, outputs: 50, batch: 16, text_bytes: 20000}
methods:
  - {name: fp32, method: fp32}
  - {name: bf16, method: bf16}
  - {name: paper, method: asc-paper, plans: [equal, splitter]}
  - {name: asc, method: asc, schedule: boomerang, plans: [interleave]}
  - {name: both, method: asc, schedule: duplex, plans: [snake]}
"""
ROW_KEYS = {
    "name", "plan", "bits_per_value", "step_sync_bytes", "wire_bytes", "time_s", "speedup_vs_fp32", "exact",
    "step_sync_bits", "efficiency", "clipped", "clipped_energy", "identical",
}  # fmt: skip


def run(arguments: Sequence[Any]) -> int:
    """Run the command line in this process; argparse's own exit becomes a status."""
    try:
        return main([str(a) for a in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of one small comparison: c.yaml and out/."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "c.yaml").write_text(TINY + f"output: {folder / 'out'}\n")
    assert run(["allreduce", folder / "c.yaml", "--json", folder / "copy.json"]) == 0
    return folder


# ------------------------------------------------------------------------------------------------ help


def test_help_is_instant_and_imports_nothing_heavy() -> None:
    script = (
        "import sys, oscar.cli\n"
        "try: oscar.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'numba', 'yaml', 'pydantic', 'rich', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert f"example:\n  oscar {name}" in capsys.readouterr().out


def test_no_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "start here" in capsys.readouterr().out


def test_module_runs() -> None:
    done = subprocess.run([sys.executable, "-m", "oscar", "--version"], capture_output=True, check=False)
    assert done.stdout.startswith(b"oscar ")


# ---------------------------------------------------------------------------------- init and completion


def test_init_writes_what_its_command_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init"]) == 0
    assert load_config("oscar.yaml") == load_config("default")
    text = Path("oscar.yaml").read_text()
    assert "oscar allreduce oscar.yaml" in text  # its comments name the file
    assert "error_feedback: false #" in text
    capsys.readouterr()
    assert run(["init", "oscar.yaml", "--from", "train"]) == 2
    assert "oscar.yaml exists; give another name, or --force" in capsys.readouterr().err
    assert Path("oscar.yaml").read_text() == text
    assert run(["init", "oscar.yaml", "--from", "train", "--force"]) == 0
    assert load_config("oscar.yaml") == load_config("train")
    assert [path.name for path in tmp_path.iterdir()] == ["oscar.yaml"]


def test_init_lists_every_shipped_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == shipped.names()
    assert all(len(line.split()) > 4 for line in lines)  # each says what it is


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("allreduce", "default"),
        ("train", "train"),
        ("compare", "compare_numpy"),
        ("worker", "mpi"),
        ("trace record -o x.npz", "default"),
        ("trace replay x.npz", "default"),
    ],
)
def test_commands_alone_take_a_shipped_configuration(command: str, name: str) -> None:
    args = build_parser().parse_args(command.split())
    assert read_config(args) == load_config(ROOT / "configs" / f"{name}.yaml")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_options_and_choices(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--print-completion", shell]) == 0
    script = capsys.readouterr().out
    for word in (*COMMANDS, "checkpoint", "codec-gvalues", "replay", *shipped.names()):
        assert word in script, word
    checker = shutil.which(shell)
    if checker is not None:
        subprocess.run([checker, "-n"], input=script.encode(), check=True)


def test_completion_in_bash() -> None:
    script = """source /dev/stdin <<< "$(python -m oscar --print-completion bash)"
    complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_oscar; echo "${COMPREPLY[*]}"; }
    complete_line oscar al; complete_line oscar init --from rt; complete_line oscar train configs/trai"""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    found = [line.split() for line in done.stdout.splitlines()]
    assert found == [["allreduce"], ["rtl"], ["configs/train.yaml"]]


def test_completion_of_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--print-completion", "sh"]) == 2
    assert "expected one of bash, zsh" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------- allreduce


def test_results_are_json_with_stable_keys(tiny: Path) -> None:
    results = json.loads((tiny / "out" / "results.json").read_text())
    assert results == json.loads((tiny / "copy.json").read_text())
    assert set(results) >= {"config", "quantiser", "model", "nodes", "methods", "loss"}
    assert results["model"]["name"] == "numpy-lm"
    assert results["nodes"] == 3
    assert (results["quantiser"], results["quantiser_bits"]) == ("12s", 12)
    assert len(results["loss"]) == 4
    assert [(r["name"], r["plan"]) for r in results["methods"]] == [
        ("fp32", "equal"), ("bf16", "equal"), ("paper", "equal"), ("paper", "splitter"),
        ("asc", "interleave"), ("both", "snake"),
    ]  # fmt: skip
    for row in results["methods"]:
        assert set(row) >= ROW_KEYS
        assert row["identical"]
        assert row["exact"] == (row["name"] != "bf16")
        assert row["time_s"] > 0
        assert len(row["step_bits"]) == 4
    fp32 = results["methods"][0]
    assert fp32["speedup_vs_fp32"] == fp32["ratio_vs_fp32"] == 1.0
    assert fp32["bits_per_value"] > 32
    assert sum(row["best"] for row in results["methods"] if row["name"] == "paper") == 1


def test_all_files_are_written(tiny: Path) -> None:
    out = tiny / "out"
    assert {p.name for p in out.iterdir()} >= {"results.json", "table.md", "allreduce.png", "trace.json"}
    assert (out / "allreduce.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((out / "trace.json").read_text())["traceEvents"]
    assert "| paper | splitter" in (out / "table.md").read_text()


def test_workers_do_not_change_results(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "serial"
    assert run(["allreduce", tiny / "c.yaml", "--set", f"output={out}", "--workers", "1"]) == 0
    first, second = (json.loads((p / "results.json").read_text()) for p in (tiny / "out", out))
    assert first["methods"] == second["methods"]
    assert first["loss"] == second["loss"]


def test_schemes_are_compared_beside_codecs(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """zen exchanges, powersgd sums floats, oscar-sw sends coded frames, lhc can tell that it is exact."""
    schemes = ["topk", "zen", "powersgd", "lhc"]
    options = {"topk": "density: 0.25", "powersgd": "rank: 4"}  # what tells of no caution
    rows = [
        f"{{name: {name}, method: {name}, scheme: {{{options.get(name, '')}}}}}"
        for name in (*schemes, "fp32")
    ]
    rows.append("{name: sw, method: oscar-sw, plans: [snake], scheme: {coded: true}}")
    own = [f"methods=[{', '.join(rows)}]", "method=zen", f"output={tmp_path}", "iterations=5"]
    sets = [part for one in own for part in ("--set", one)]
    assert run(["allreduce", tiny / "c.yaml", "--workers", "1", *sets]) == 0
    table = capsys.readouterr().out
    assert re.search(r" topk +- .* - +- +same\n", table), table
    found = {row["name"]: row for row in json.loads((tmp_path / "results.json").read_text())["methods"]}
    assert {name: row["plan"] for name, row in found.items()} == {
        **dict.fromkeys(schemes, "-"), "fp32": "equal", "sw": "snake",
    }  # fmt: skip
    assert [row["rtl_time_s"] is None for row in found.values()] == [row != "fp32" for row in found]
    assert all(row["identical"] and row["time_s"] > 0 < row["bits_per_value"] for row in found.values())
    assert [name for name, row in found.items() if row["exact"]] == ["lhc", "fp32"]
    bars = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert max(bar.get("ts", 0) for bar in bars) > 0
    check_page(tmp_path / "results.json")
    assert run(["report", tmp_path / "results.json", "--markdown"]) == 0
    assert "| topk | - |" in capsys.readouterr().out
    only = ["--set", f"methods=[{rows[0]}]"]
    assert run(["allreduce", tiny / "c.yaml", "--workers", "1", *sets, *only]) == 0
    assert "Only schemes were compared" in check_page(tmp_path / "results.json")


def test_seed_changes_results_and_is_recorded(tiny: Path, tmp_path: Path) -> None:
    arguments = ["allreduce", tiny / "c.yaml", "--seed", "5", "--set", "methods=[]", "--set", "nodes=1"]
    assert run([*arguments, "--set", f"output={tmp_path}"]) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["config"]["seed"] == 5
    assert results["methods"][0]["time_s"] == 0


def test_wrong_sum_is_exit_status_1(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from oscar.reducers.local_wire import LocalWire

    monkeypatch.setattr(LocalWire, "_is_sum", lambda *_: False)
    arguments = ["allreduce", tiny / "c.yaml", "--workers", "1", "--set", f"output={tmp_path}"]
    assert run([*arguments, "--set", "methods=[]", "--set", "iterations=1"]) == 1
    assert "FAILED" in capsys.readouterr().out
    contenders = "compare.contenders=[{name: asc, method: asc}]"
    for command, *more in (
        ["train"],
        ["compare", "--workers", "1", "--set", "compare.metric=loss", "--set", contenders],
    ):
        assert run([command, tiny / "c.yaml", *more, "--set", f"output={tmp_path}"]) == 1
        assert "expected the exact sum on every node" in capsys.readouterr().err


def test_report_prints_the_same_table_and_draws(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tiny / "again.png"
    assert run(["report", tiny / "out" / "results.json", "--figure", figure]) == 0
    text = capsys.readouterr().out
    assert text.count(" float   sum   -1 ") == 6
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert run(["report", tiny / "out" / "results.json", "--figure", figure, "--markdown"]) == 0
    assert capsys.readouterr().out.strip() == (tiny / "out" / "table.md").read_text().strip()


def check_page(results: Path) -> str:
    """Make a page of results and return it: whole, with their figure and table, nothing fetched."""
    page = results.with_suffix(".html")
    figure = results.with_name("page.png")
    assert run(["report", results, "--html", page, "--figure", figure]) == 0
    text = page.read_text()
    assert text.rstrip().endswith("</html>")
    assert set(re.findall(r'(?:src|href)="(.{11})', text)) == {"data:image/"}
    assert hashlib.sha256(results.read_bytes()).hexdigest() in text
    return text


def test_page_of_a_comparison_and_of_its_scaling(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = json.loads((tiny / "out" / "results.json").read_text())
    results["methods"][0]["name"] = "<script>"
    (tiny / "named.json").write_text(json.dumps(results))
    text = check_page(tiny / "named.json")
    assert text.count("<img ") == 2  # figure and timeline
    assert "&lt;script&gt;" in text
    assert "<script>" not in text
    assert "granule: " in text  # the configuration
    arguments = ["scale", "--results", tiny / "out" / "results.json", "--json", tiny / "scaled.json"]
    assert run([*arguments, "--figure", tiny / "scaled.png"]) == 0
    assert "larger rings modelled" in check_page(tiny / "scaled.json")
    capsys.readouterr()


def test_names_are_no_formulas_and_no_columns(tiny: Path, tmp_path: Path) -> None:
    """A method may have any name that can be printed."""
    from oscar_studies.comparison_report import markdown_table
    from oscar_studies.scaling import draw_scale, scale_results

    results = json.loads((tiny / "out" / "results.json").read_text().replace('"both"', r'"$\\frac$ a|b $_x"'))
    assert results["methods"][-1]["name"] == r"$\frac$ a|b $_x"
    (tmp_path / "results.json").write_text(json.dumps(results))
    assert run(["report", tmp_path / "results.json"]) == 0
    draw_scale(scale_results(results, [2, 3]), tmp_path / "scale.png")
    rows = [line for line in markdown_table(results).splitlines() if line.startswith("| ")]
    assert len({row.replace(r"\|", "").count("|") for row in rows}) == 1


def test_scale_takes_no_exchanged_frames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two ranks at a switch have no frames of sums."""
    small = ["iterations=2", "nodes=2", "methods=[]", f"output={tmp_path}"]
    assert run(["allreduce", "default", *(word for one in small for word in ("--set", one))]) == 0
    assert run(["scale", "--results", tmp_path / "results.json", "--nodes", 8]) == 2
    assert "compare with more than 2 nodes or with schedule.name=direct" in capsys.readouterr().err


def test_scale_from_results(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["scale", "--results", tiny / "out" / "results.json", "--nodes", 1024, 8, "--values", "1M"]
    assert run([*arguments, "--json", tiny / "s.json", "--figure", tiny / "s.png"]) == 0
    assert capsys.readouterr().out.splitlines()[2].endswith("speedup")
    scaled = json.loads((tiny / "s.json").read_text())
    assert {p["nodes"] for p in scaled["points"]} == {8, 1024}
    assert {p["name"] for p in scaled["points"]} == {"fp32", "bf16", "paper", "asc", "both"}
    by = {(p["name"], p["nodes"]): p for p in scaled["points"]}
    assert by["asc", 8]["bits_per_value"] < by["asc", 1024]["bits_per_value"] < 32
    assert (tiny / "s.png").read_bytes().startswith(b"\x89PNG")


def test_trace_record_and_replay(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "t.npz"
    assert run(["trace", "record", tiny / "c.yaml", "-o", trace]) == 0
    first, last = capsys.readouterr().out.splitlines()
    (megabytes,) = re.findall(r"# 4 iterations x 3 nodes x [\d,]+ values: (\d+\.\d) MB in memory", first)
    assert trace.stat().st_size < 0.8e6 * float(megabytes)  # most of an embedding's gradient is zero
    assert f"{trace.stat().st_size / 1e6:.1f} MB" in last
    arguments = ["trace", "replay", trace, tiny / "c.yaml", "--set", f"output={tmp_path / 'out'}"]
    assert run([*arguments, "--set", "iterations=99", "--set", "nodes=7"]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (results["nodes"], results["iterations"]) == (3, 4)
    assert results["model"]["name"] == "trace:numpy-lm"


def test_a_command_that_compiles_nothing_does_not_load_the_compiler(tmp_path: Path) -> None:
    code = "import sys; from oscar.cli import main; main(); sys.exit('numba' in sys.modules)"
    words = [sys.executable, "-c", code, "init", str(tmp_path / "own.yaml")]
    assert subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode == 0
    assert (tmp_path / "own.yaml").exists()


def test_compiling_is_said_once_by_all_processes(capfd: pytest.CaptureFixture[str]) -> None:
    def compile_one(module: str | None = "oscar.own") -> None:
        def kernel(x: int) -> int:
            return x + 1

        kernel.__module__ = module  # type: ignore[assignment]
        numba.njit(kernel)(1)

    compile_one()
    with compiling_said():
        compile_one("elsewhere")  # a user's
        compile_one(None)  # one that exec made
        assert COMPILING not in capfd.readouterr().err
        children = [multiprocessing.get_context("fork").Process(target=compile_one) for _ in range(2)]
        for child in children:
            child.start()
            child.join()
        compile_one()
    assert capfd.readouterr().err.splitlines() == [COMPILING]


# ------------------------------------------------------------------------------------------------ codec


@pytest.mark.parametrize("dtype", ["f2", "f8"])
def test_codec_says_that_it_converts_floats(
    dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "g.npy", np.random.default_rng(0).laplace(size=300).astype(dtype))
    assert run(["codec", tmp_path / "g.npy", "--codec", "fp32"]) == 0
    text = capsys.readouterr().out
    how = "converted" if dtype == "f2" else "rounded"
    assert f"# float codecs take float32: {how} from {np.dtype(dtype)}" in text
    assert text.splitlines()[-1].split()[-1] == ("yes" if dtype == "f2" else "lossy")


def test_frame_round_trip_with_classes(tmp_path: Path) -> None:
    values, classes = np.arange(-60, 60).reshape(12, 10), np.arange(120).reshape(12, 10) % 16
    np.save(tmp_path / "v.npy", values)
    np.save(tmp_path / "c.npy", classes)
    given = ["--classes", tmp_path / "c.npy"]
    assert run(["codec", tmp_path / "v.npy", *given, "-o", tmp_path / "v.frame"]) == 0
    assert run(["codec", "--decode", tmp_path / "v.frame", "-o", tmp_path / "w.npy"]) == 2  # without them
    assert run(["codec", "--decode", tmp_path / "v.frame", *given, "-o", tmp_path / "w.npy"]) == 0
    assert np.array_equal(np.load(tmp_path / "w.npy"), values)


def test_codec_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "v.npy", np.arange(-50, 50, dtype=np.int16))
    classes = np.repeat(np.arange(10, dtype=np.uint8), 10)
    np.save(tmp_path / "c.npy", classes)
    assert run(["codec", tmp_path / "v.npy", "--all", "--classes", tmp_path / "c.npy", "--nodes", "8"]) == 0
    text = capsys.readouterr().out
    assert "atalanta-dp" in text
    assert "fp32" not in text  # integers stay integers
    assert "# one frame, cold tables: what ASC learns" in text.splitlines()[-1]


def test_codec_all_leaves_out_who_cannot_take_the_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "v.npy", np.array([-(1 << 31), 0, (1 << 31) - 1]))
    assert run(["codec", tmp_path / "v.npy", "--all"]) == 0
    text = capsys.readouterr().out
    assert "# one frame, cold tables, no position classes: " in text.splitlines()[-1]
    rows = {line.split()[0]: line for line in text.splitlines() if line[0] != "#"}
    assert "carries up to 16 bits, this chunk needs 32" in rows["int16"]
    assert rows["asc"].endswith("yes")
    np.save(tmp_path / "v.npy", np.array([1 << 40]))
    assert run(["codec", tmp_path / "v.npy", "--all"]) == 2
    assert "no codec takes it" in capsys.readouterr().err


CLASSES = "expected position classes, integers from 0 to 15"
BAD_ARRAYS: dict[str, tuple[np.ndarray, np.ndarray | None, list[Any], str]] = {  # classes, options, error
    "nan": (np.array([1.0, np.nan], np.float32), None, [], "(nan); replace them before coding"),
    "inf": (np.array([1.0, np.inf]), None, [], "Inf"),
    "complex": (np.zeros(3, complex), None, [], "expected integers or floats, got complex128"),
    "wide": (np.array([1 << 40]), None, [], "more than 32 signed bits"),
    "objects": (np.array([{}], dtype=object), None, [], "allow_pickle=False"),
    "no nodes": (np.arange(3), None, ["--nodes", 0], "--nodes: expected 1 or more, got 0"),
    "negative nodes": (np.arange(3), None, ["--nodes", -3], "--nodes: expected 1 or more, got -3"),
    "class 16": (np.arange(3), np.full(3, 16), [], CLASSES),
    "class -1": (np.arange(3), np.full(3, -1), [], CLASSES),
    "float classes": (np.arange(3), np.zeros(3), [], CLASSES),
    "few classes": (  # kernels read a class for each value, and would read far beyond the array
        np.arange(200_000) % 100, np.zeros(64, np.uint8), [],
        "context is one integer class 0..15 for each of 200000 values, got uint8 of shape (64,)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_ARRAYS)
def test_codec_refuses_arrays(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    array, classes, words, said = BAD_ARRAYS[name]
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    if classes is not None:
        np.save(tmp_path / "c.npy", classes)
        words = ["--classes", tmp_path / "c.npy"]
    assert run(["codec", tmp_path / "a.npy", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("oscar codec: error: ")
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("codec", "dtype"),
    [
        ("asc", np.float32),
        ("asc", np.float64),
        ("asc", np.int8),
        ("asc --reference", np.int64),
        ("zstd", np.float32),
        ("fp32", np.float64),
    ],
)
def test_codec_gives_the_array_back(codec: str, dtype: Any, tmp_path: Path, seed: int) -> None:
    """Shape and dtype as before; floats within half a step of sigma/8, all of it from the file alone."""
    array = np.random.default_rng(seed).laplace(0, 20, (7, 30)).clip(-127, 127).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    words = ["--codec", *codec.split(), "-o", tmp_path / "a.oscar"]
    assert run(["codec", tmp_path / "a.npy", *words]) == 0
    assert run(["codec", "--decode", tmp_path / "a.oscar", "-o", tmp_path / "b.npy"]) == 0
    back = np.load(tmp_path / "b.npy")
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    room = 0 if dtype in (np.int8, np.int64) else 1e-5 if codec == "fp32" else array.std() / 8
    assert np.abs(back - array).max() <= room


def test_codec_refuses_damaged_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any byte of it: header, its length, its CRC, the frame."""
    np.save(tmp_path / "a.npy", np.linspace(-1, 1, 50, dtype=np.float32))
    assert run(["codec", tmp_path / "a.npy", "-o", tmp_path / "a.oscar"]) == 0
    content = (tmp_path / "a.oscar").read_bytes()
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        (tmp_path / "d.oscar").write_bytes(damaged)
        assert run(["codec", "--decode", tmp_path / "d.oscar", "-o", tmp_path / "b.npy"]) in (1, 2), at
        assert not (tmp_path / "b.npy").exists()
    capsys.readouterr()


HEAD = b"\x93NUMPY\x01\x00"  # and the length of what follows: text of Python


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        HEAD + b"v\x00{",
        b"PK\x03\x04" + bytes(40),
        HEAD + b"\x07\x00{'a': \n",
        HEAD + b"\x03\x00{{}",
    ],
)
def test_codec_refuses_files(data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(data)
    for arguments in (["codec", path], ["codec", "--decode", path, "-o", tmp_path / "o.npy"]):
        assert run(arguments) == 2
        error = capsys.readouterr().err
        assert f"error: {path}: " in error
        assert "multi-line" not in error  # of Python's parser
    assert not (tmp_path / "o.npy").exists()


# ---------------------------------------------------------------------------------------------- predict


PREDICT = ["predict", "--values", "1M", "--nodes", "8", "--gbps", "1"]


def test_predict_pays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "p.json"
    words = ["predict", "--values", "25M", "--nodes", 8, "--gbps", 25, "--bits", 4, "--codec", "ideal"]
    assert run([*words, "--json", out]) == 0
    text = capsys.readouterr().out
    assert "pays: " in text
    assert re.search(r"^fp32 +56\.\d{3} ms$", text, re.MULTILINE)
    assert re.search(r"^coded +7\.\d{3} ms$", text, re.MULTILINE)
    assert "not usable, sums of 8 workers overflow 8 bits" in text
    assert "pays at any link rate (tried up to 10 Tb/s) for this model" in text
    assert text.splitlines()[-1] == (
        "# assumed: a codec that takes no time for a value (this host: --codec host); 4 bits/value; "
        "schedule direct, 1 frame a chunk (the fastest)"
    )
    assert json.loads(out.read_text())["pays"] is True


def test_predict_without_options_is_asc_on_this_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that the host computes is in the time, so ranks that share a core take as many times as long."""
    words = ["predict", "--values", "10M", "--nodes", 2, "--gbps", 1e4, "--json", tmp_path / "p.json"]
    took = {}
    for ranks in (1, 3):
        assert run([*words, "--ranks-per-core", ranks]) == 3
        took[ranks] = json.loads((tmp_path / "p.json").read_text())["time_s"]
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(
        r"# assumed: hosts like this one \(.+\), one thread a rank, 3 ranks a core; "
        r"[\d.]+ bits/value as estimated on 2 nodes for asc; schedule exchange, \d+ frames? a chunk "
        r"\(the fastest\)",
        last,
    )
    assert took[1] >= method_cost(Config(method="asc", nodes=2)).coding_s(10_000_000, 2)
    assert took[3] == pytest.approx(3 * took[1], rel=0.1)  # at 10 Tb/s nothing but computing takes time


def test_predict_takes_the_number_of_sub_frames_that_is_fastest(tmp_path: Path) -> None:
    words = ["predict", "--values", "4M", "--nodes", 8, "--gbps", 100, "--bits", 2, "--codec", "rtl"]
    words += ["--json", tmp_path / "p.json"]
    took = {}
    for given in ([], *(["--subframes", number] for number in (2, 4, 8, 24))):
        assert run([*words, *given]) in (0, 3)
        result = json.loads((tmp_path / "p.json").read_text())
        took[result["subframes"] if given else "picked"] = result["time_s"]
    assert took["picked"] == min(took.values()) < took[24] / 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ["--values", "1k", "--nodes", 64, "--gbps", 400, "--codec", "ideal"],
            "bf16 takes 4.08 us, coded 6.09 us (5 % needed): ",
        ),
        (["--values", "25M", "--nodes", 1, "--gbps", 25], "direct 1.00\ndoes not pay: N=1: nothing to send"),
        (["--values", "25M", "--nodes", 8, "--gbps", 0.1, "--bits", 16], "too few bits saved"),
        (["--values", "25M", "--nodes", 8, "--gbps", 400, "--codec-gvalues", 0.1], "faster than the codec"),
    ],
)
def test_predict_refuses(arguments: list[Any], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", *arguments]) == 3
    assert reason in capsys.readouterr().out


def test_predict_takes_bits_and_times_from_the_cost_of_a_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", "--values", "1M", "--nodes", 2, "--gbps", 1e-3, "--json", tmp_path / "p.json"]
    for method, codec, seen in (
        ("zstd", "host", "codec: host (1 x zstd on a core: "),
        ("zstd", "ideal", "codec: ideal (line rate"),
        ("terngrad", "host", "codec: host (terngrad has no coded frames), estimated on this machine; "),
    ):
        assert run([*words, "--method", method, "--codec", codec]) == 0
        said, found = capsys.readouterr().out, json.loads((tmp_path / "p.json").read_text())
        tree = {"method": method, "nodes": 2}
        cost = method_cost(Config.model_validate(tree))
        assert f"{cost.bits_per_value:.4g} bits/value as estimated on 2 nodes for {method}" in said
        assert seen in said
        assert re.search(rf"^{method} +[\d.]+ s$", said, re.MULTILINE)
        assert ("this host: --codec host" in said) is (codec == "ideal")
        assert ("before and after the AllReduce" in said) is (codec == "host")
        assert found["bits_per_value"] == cost.bits_per_value
        assert found["cost"] == asdict(cost)


def test_predict_says_where_its_nic_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(nic.__file__).parent / "nics" / "u55c.json"
    for gbps, words, said in (
        (25, [], r"1 x .* ECP5.* \(of the package, for links of up to 25 Gb/s; --nic-file for another\)"),
        (26, [], r"8 x .* U55C.* \(of the package, for links above 25 Gb/s; --nic-file for another\)"),
        (25, ["--nic-file", file], r"8 x .* U55C.* faster\)$"),
    ):
        run(["predict", "--values", "100k", "--nodes", 4, "--gbps", gbps, "--codec", "rtl", *words])
        line = capsys.readouterr().out.splitlines()[1]
        assert re.search(said, line), line


def test_predict_takes_the_bits_that_are_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", "--values", "1M", "--nodes", 2, "--gbps", 1e-3]
    assert run([*words, "--method", "zstd", "--bits", 3.5, "--json", tmp_path / "p.json"]) == 0
    assert "3.5 bits/value as given for zstd" in capsys.readouterr().out
    assert json.loads((tmp_path / "p.json").read_text())["bits_per_value"] == 3.5
    assert run([*words, "--codec", "ideal"]) == 0
    assert "6 bits/value; schedule exchange" in capsys.readouterr().out


def test_predict_chooses_the_schedule_by_the_bits_that_are_given(tmp_path: Path) -> None:
    """An ECP5 at 1 Gb/s is faster by a ring; with bits that grow as sums do, as in a run, it is not."""
    words = ["predict", "--values", "6M", "--nodes", 8, "--gbps", 1, "--subframes", 24, "--codec", "rtl"]
    took = {}
    for name in ("ring", "direct", "auto"):
        assert run([*words, "--bits", 2, "--schedule", name, "--json", tmp_path / "p.json"]) == 0
        took[name] = json.loads((tmp_path / "p.json").read_text())["time_s"]
    assert took["auto"] == took["ring"] < took["direct"]


# ----------------------------------------------------------------------------------------------- errors


def test_errors_are_one_line_and_status_2(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocked = tiny / "c.yaml" / "below"
    for arguments, said in (
        (["allreduce", tiny / "none.yaml"], "no such file"),
        (["allreduce", tiny / "c.yaml", "--set", "nodez=3"], "did you mean 'nodes'"),
        (["allreduce", tiny / "c.yaml", "--set", f"output={blocked}"], "cannot write there"),
        (["allreduce", tiny / "c.yaml", "--json", tiny / "no" / "x"], "expected an existing folder"),
        (["allreduce", tiny / "c.yaml", "--set", "iterations=100000000"], "lower iterations to"),
        (["allreduce", tiny / "c.yaml", "--set", "workload.name=numpy"], "unknown workload"),
        (["allreduce", tiny / "c.yaml", "--set", "workload.trace=none.npz"], "there is no such file"),
        (["allreduce", tiny / "c.yaml", "--workers", "0"], "--workers: expected 1 or more"),
        (["report", tiny / "c.yaml"], "expected results of `oscar allreduce`"),
        (["report", tiny / "s"], "no such file"),
        (["scale"], "give a CONFIG to run, or --results"),
        (["scale", "--results", tiny / "out" / "results.json", "--nodes", "4096"], "2 to 1024 nodes"),
        (
            ["scale", "--results", tiny / "out" / "results.json", "--values", "0"],
            "at least 1 value and at most",
        ),
        (["scale", "--results", tiny / "out" / "results.json", "--values", "1e30"], "--values: expected"),
        (["scale", tiny / "c.yaml", "--nodes", "100000000"], "expected 2 to 1024 nodes, got 100000000"),
        (["allreduce", tiny / "c.yaml", "--set", "workload.options.batch=100000000000"], "not enough memory"),
        (
            ["predict", "--values", "1M", "--nodes", "8", "--gbps", "1e-308"],
            "link.gbps: Input should be",
        ),
        (["codec"], "give a FILE.npy"),
        (["bench", "nothing"], "unknown bench 'nothing'"),
        (["trace", "replay", tiny / "c.yaml"], "there is no such file"),
        (["predict", "--values", "0", "--nodes", "8", "--gbps", "1"], "--values: expected 1 to 4,000,"),
        (["predict", "--values", "1e30", "--nodes", "8", "--gbps", "1"], "got 1e+30"),
        (
            ["schedule", "draw", "direct", "--values", "1e30"],
            "--values: expected 1 to 4,000,000,000,000, got",
        ),
        ([*PREDICT, "--schedule", "duplex", "--codec", "rtl"], "duplex keeps two sums of a value apart"),
        ([*PREDICT, "--nic-file", "u55c.json"], "--nic-file needs --codec rtl, got --codec host"),
        ([*PREDICT, "--ranks-per-core", "2", "--codec", "rtl"], "--ranks-per-core needs --codec host, got"),
        ([*PREDICT, "--ranks-per-core", "0"], "--ranks-per-core: expected more than 0"),
        ([*PREDICT, "--no-driver", "--codec", "host"], "--no-driver needs --codec rtl, got --codec host"),
        (
            [*PREDICT, "--topology", "net.yaml"],
            "--gbps is not for --topology: net.yaml says how fast links are",
        ),
        (["offload", "U55C", "--units", "8"], "--units needs --unit rtl, got --unit roofline"),
        ([*PREDICT, "--method", "ternagrad"], "did you mean 'terngrad'"),
        ([*PREDICT, "--method", "zstd", "--codec", "rtl"], "codes ASC only, not zstd"),
        ([*PREDICT, "--method", "bf16", "--schedule", "duplex"], "needs a lossless integer codec"),
    ):
        assert run(arguments) == 2, arguments
        error = capsys.readouterr().err
        assert error.startswith(f"oscar {arguments[0]}: error: ")
        assert said in error
        assert error.count("\n") == 1


def test_a_wrong_word_is_told_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        ("trian", "oscar: error: .*invalid choice: 'trian' .*; did you mean 'train'"),
        ("schedule drow", "oscar schedule: error: .*; did you mean 'draw'"),
        ("predict --codec idael", "oscar predict: error: .*; did you mean 'ideal'"),
        ("train --sedes=3", "oscar train: error: unrecognized arguments: --sedes=3; did you mean '--seeds'"),
        ("train --config c", "arguments: --config; leave out --config, and give its value alone"),
        ("train --zebra", "unrecognized arguments: --zebra$"),
    ):
        assert run(words.split()) == 2
        assert re.search(said, capsys.readouterr().err.rstrip()), words


@pytest.mark.parametrize(
    ("variable", "limit", "said"),
    [
        ("NUMBA_DISABLE_JIT", None, "NUMBA_DISABLE_JIT is set; unset it"),
        ("X", 400_000, "the limit is 390 MiB"),
    ],
)
def test_what_the_machine_lacks_is_one_line(
    variable: str, limit: int | None, said: str, tmp_path: Path
) -> None:
    import resource

    np.save(tmp_path / "g.npy", np.arange(300))
    done = subprocess.run(
        [sys.executable, "-m", "oscar", "codec", str(tmp_path / "g.npy")],
        env={**os.environ, variable: "1"}, capture_output=True, text=True, check=False, timeout=60,
        preexec_fn=lambda: limit and resource.setrlimit(resource.RLIMIT_AS, (limit << 10, limit << 10)),
    )  # fmt: skip
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


WITHOUT = """
import importlib.machinery, sys
gone, arguments, find = set(sys.argv[1].split()), sys.argv[2:], importlib.machinery.PathFinder.find_spec
def found(name, *more): return None if name.split(".")[0] in gone else find(name, *more)
importlib.machinery.PathFinder.find_spec = found
if arguments:
    from oscar.cli import main
    sys.exit(main(arguments))
import oscar
try: oscar.LocalCluster
except ImportError as error: sys.exit(f"oscar: {error}")
"""


@pytest.mark.parametrize(
    ("gone", "arguments", "said"),
    [
        (" ".join(REQUIRED), ["init"], f"installed: {' '.join(REQUIRED.values())}; `make setup`"),
        ("yaml", ["codec", "g.npy"], "installed: pyyaml; `make setup`, or pip install -e . in the checkout"),
        ("numba", [], "installed: numba; `make setup`"),
        ("constriction", ["bench", "speed"], "constriction"),
    ],
)  # fmt: skip
def test_a_package_that_is_missing_is_one_line(
    gone: str, arguments: list[str], said: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, gone, *arguments], cwd=tmp_path, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == (2 if arguments else 1)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_every_package_that_the_host_needs_is_looked_for() -> None:
    project = (ROOT / "pyproject.toml").read_text().partition("dependencies = [")[2].partition("]")[0]
    assert sorted(re.findall(r'"(\w+)', project)) == sorted([*REQUIRED.values(), "myhdl"])


def test_nowhere_to_keep_kernels_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from numba.core.caching import CacheImpl

    from oscar.kernels import njit

    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    monkeypatch.setattr("oscar_studies.cli.report.read_results", lambda *_: njit(cache=True)(run))
    assert run(["report", tiny / "out" / "results.json"]) == 2
    error = capsys.readouterr().err
    assert "set NUMBA_CACHE_DIR to a folder you can write to" in error
    assert error.count("\n") == 1


ELSEWHERE = """
import sys
from numba.core import caching
given = getattr(caching, "UserProvidedCacheLocator", None) or caching._UserProvidedCacheLocator  # by release
caching.CacheImpl._locator_classes = [given]  # a read-only install, and no home
for door in sys.argv[1:]: exec(door)
"""
DOORS = ["import oscar.pseudo", "import oscar; oscar.LocalCluster(oscar.Config(nodes=2))"]
DOORS += ["import oscar.torch_ddp"] if find_spec("torch") else []


@pytest.mark.parametrize("private", [True, False])
def test_python_has_a_cache_of_its_own_where_numba_has_none(private: bool, tmp_path: Path) -> None:
    """As for another user than the one who installed; a folder that others can write to is not taken."""
    folder = tmp_path / f"oscar-kernels-{os.getuid()}"
    if not private:
        folder.mkdir()
        folder.chmod(0o777)
    env = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *DOORS], env={**env, "TMPDIR": str(tmp_path)},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if private:
        assert (done.returncode, done.stderr) == (0, "")
        assert folder.stat().st_mode & 0o777 == 0o700
    else:
        last = done.stderr.splitlines()[-1]
        assert last.startswith(
            "oscar.errors.OscarError: compiled kernels can be kept neither beside the code"
        )
        assert last.endswith(
            f"others can write to {folder}: set NUMBA_CACHE_DIR to a folder you can write to"
        )


def test_debug_shows_where(tiny: Path) -> None:
    with pytest.raises(ValueError, match="no such file"):
        main(["--debug", "report", str(tiny / "nothing.json")])


def test_results_of_another_schema_are_refused(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = json.loads((tiny / "out" / "results.json").read_text())
    (tiny / "old.json").write_text(json.dumps(results | {"schema": 0}))
    assert run(["report", tiny / "old.json"]) == 2
    assert "written as schema 0" in capsys.readouterr().err


def test_damaged_results_are_refused_by_their_name(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What lies deeper than the outermost keys is missed where it is shown."""
    results, path = json.loads((tiny / "out" / "results.json").read_text()), tiny / "damaged.json"

    def refused(*arguments: Any, **changed: Any) -> str:
        path.write_text(json.dumps(results | changed))
        assert run(arguments) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error.partition(f"{path}: ")[2]

    rows = [{key: value for key, value in row.items() if key != "best"} for row in results["methods"]]
    assert "'best' is missing; run it again" in refused("report", path, methods=rows)
    assert "'best' is missing" in refused("scale", "--results", path, methods=rows)
    assert "expected results as `oscar allreduce`" in refused("report", path, methods=[1])
    assert "nic.clock of the results" in refused("report", path, "--markdown", nic={"clock": 1})


def test_results_with_nan_are_refused(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tiny / "nan.json").write_text('{"loss": [NaN]}')
    assert run(["report", tiny / "nan.json"]) == 2
    assert "got NaN, which is no number in JSON" in capsys.readouterr().err


def test_interrupt_is_130(monkeypatch: pytest.MonkeyPatch, tiny: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("oscar_studies.cli.report.read_results", interrupt)
    assert run(["report", tiny / "out" / "results.json"]) == 130
