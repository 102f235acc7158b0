"""What the first pages show must run: Python, every command that is cheap, and the tour of examples/."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from oscar import plugins
from oscar.cli import COMMANDS as RUNTIME_COMMANDS
from oscar.cli import build_parser, main
from oscar_lab.cli.bench import modules

OSCAR_COMMANDS = (*RUNTIME_COMMANDS, *plugins.entries(plugins.COMMANDS))
ROOT = Path(__file__).parents[2]
NO_MODULES = "oscar.core", "oscar.nic", "oscar.codecs", "oscar.methods", "oscar.commands", "oscar.ddp"
PAGES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in ("README.md", "docs/start/install.md", "docs/start/tour.md", "docs/reference/commands.md")
}
README = PAGES["README.md"]
COMMANDS = list(  # of all of them, each once
    dict.fromkeys(
        line
        for text in PAGES.values()
        for block in (
            *re.findall(r"```sh\n(.*?)```", text, re.DOTALL),
            *re.findall(r"^\$ (oscar .*)$", text, re.MULTILINE),
        )
        for line in block.splitlines()
        if line
    )
)
SMALL = {  # makes a command cheap: appended
    "oscar allreduce": "--set iterations=2 --set nodes=3 --set 'methods=[]'",
    "oscar train": "--set iterations=4 --set nodes=2 --set train.ring_every=1",
    "oscar compare": "--set iterations=2 --set nodes=2 --set compare.seeds=[0] --set train.ring_every=1",
    "oscar trace record": "--set iterations=3 --set nodes=2",
    "oscar trace replay": "--set 'methods=[]' --set output=build/coarse",
}


def test_python_runs_and_sends_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGES["docs/start/install.md"], re.DOTALL)
    exec(compile(snippet, "install.md", "exec"), {})
    (said,) = re.findall(r"Some (\d+) bits/value", snippet)
    bits = re.findall(r"^\(256, 64\) ([\d.]+) bits/value$", capsys.readouterr().out, re.MULTILINE)
    assert [round(float(each)) for each in bits] == [int(said)] * 3


@pytest.mark.filterwarnings("ignore::oscar.errors.OscarWarning")  # clipping, divergence
def test_commands_run_in_the_order_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    statuses = {}
    for line in COMMANDS:
        extra = next((more for start, more in SMALL.items() if line.startswith(start)), "")
        program, *words = shlex.split(f"{line} {extra}")
        if program == "python":
            exec(words[1], {})
        else:
            statuses[line] = main(words)
    measured = "oscar predict", "oscar tune"  # on this host, which may be busy
    by_host = {line for line in COMMANDS if line.startswith(measured) and "--codec" not in line}
    refused = [line for line, status in statuses.items() if status == 3 and line not in by_host]
    assert refused == [line for line in COMMANDS if "--gbps 400" in line]
    assert all(status in (0, 3) for status in statuses.values()), statuses


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("oscar ")])
def test_commands_parse_as_written(line: str) -> None:
    build_parser().parse_args(shlex.split(line)[1:])


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)", PAGES[page])
    assert len(targets) > 3
    for target in targets:
        assert target.startswith("https://") or ((ROOT / page).parent / target).exists(), target


def test_readme_is_for_two_minutes() -> None:
    """Lines and words of the file; numbers that a reader sees outside code, links and names."""
    assert len(README.splitlines()) <= 90
    assert len(README.split()) <= 800
    shown = re.sub(r"```.*?```|`[^`]*`|<!--.*?-->|\]\([^)]*\)", " ", README, flags=re.DOTALL)
    numbers = re.findall(r"(?<![\w.-])\d[\d,.]*(?=x?\b)", shown)
    assert 20 < len(numbers) <= 40, numbers


@pytest.mark.filterwarnings("ignore::oscar.errors.CautionWarning")  # of Top-k
def test_the_comparison_of_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(text)
    short = ["--set", "iterations=4", "--set", "nodes=2", "--set", "compare.seeds=[0]"]
    assert main(["compare", "mine.yaml", *short, "--set", f"output={tmp_path / 'out'}"]) == 0


def test_the_hook_of_readme_is_the_one_of_its_page() -> None:
    (diff,) = re.findall(r"```diff\n(.*?)```", README, re.DOTALL)
    assert diff in (ROOT / "docs" / "how-to" / "ddp.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make ([a-z-]+)|^make ([a-z-]+)", PAGES[page], re.MULTILINE):
        target = target[0] or target[1]
        rule = f"{target}%" if target.endswith("-") else target  # mpi-4 is a case of mpi-%
        assert f"\n{rule}:" in makefile, target


def is_there(path: str) -> bool:
    """Whether a dotted path leads to a module of the host, or to something that its source names."""
    here, parts = ROOT / "host", path.split(".")
    while parts and (here / parts[0] / "__init__.py").is_file():
        here /= parts.pop(0)
    module = here / f"{parts[0]}.py" if parts else here / "__init__.py"
    if parts and module.exists():
        parts.pop(0)
    else:
        module = here / "__init__.py"
    source = module.read_text(encoding="utf-8")
    return all(re.search(rf"\b{part}\b", source) for part in parts)


def test_what_the_pages_name_exists() -> None:
    """Modules, files and commands on all pages; the changelog's table names what has gone."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *ROOT.glob("docs/**/*.md")]
    known = {"bench": modules("bench"), "trial": modules("trial")}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for path in re.findall(r"(?<![/\w])oscar(?:_gpu|_studies|_lab)?\.(?:[a-z_]+\.)*\w+\b", text):
            assert path in NO_MODULES or is_there(path), f"{page.name}: {path}"
        for path in re.findall(r"\b(?:host|tests)/[\w/]+(?:\.\w+)?", text):
            assert (ROOT / path).exists(), f"{page.name}: {path}"
        for command, name in re.findall(
            r"(?:`|^\$ |^|venv/bin/)oscar ([a-z]+)(?: ([a-z_]+)\b)?", text, re.MULTILINE
        ):
            assert command in OSCAR_COMMANDS, f"{page.name}: oscar {command}"
            assert not name or name in known.get(command, [name]), f"{page.name}: oscar {command} {name}"


def test_the_tour_shows_lines_of_its_script() -> None:
    script = {line.strip() for line in (ROOT / "examples" / "tour.py").read_text().splitlines()}
    shown = re.findall(r"```python\n(.*?)```", PAGES["docs/start/tour.md"], re.DOTALL)
    assert {line.strip() for block in shown for line in block.splitlines()} <= script


def test_tour_draws_a_training_curve(tmp_path: Path) -> None:
    script = [sys.executable, "-W", "error", str(ROOT / "examples" / "tour.py")]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "build" / "tour.png").read_bytes().startswith(b"\x89PNG")
    losses = [float(number) for number in re.findall(r"loss (\S+),", done.stdout)]
    sizes = [float(number) for number in re.findall(r", +(\S+) MB", done.stdout)]
    assert len(losses) == len(sizes) == 3
    assert max(losses) - losses[0] < 0.1 < 5.7 - losses[0]  # all learn, and as well as fp32
    assert sizes[0] > 8 * sizes[1] > 8 * sizes[2]
