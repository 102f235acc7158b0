"""Files: whole or not at all, never over an input, and a folder that one run has to itself."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from oscar.cli import main
from oscar.errors import ConfigError
from oscar.files import check_outputs, output_folder, replacing, write_json


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, [1])
    path.chmod(0o640)
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"half", 3])  # type: ignore[list-item]
    assert path.read_text() == "[\n 1\n]\n"
    write_json(path, [2])
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert names(tmp_path) == {"a.json"}


NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}  # a full disk cuts Python's own files short


@pytest.mark.parametrize("before", [None, b"old"])
def test_a_full_disk_leaves_the_old_file_or_none_and_is_named(before: bytes | None, tmp_path: Path) -> None:
    np.save(tmp_path / "g.npy", np.random.default_rng(0).integers(-99, 99, 100_000))
    out = tmp_path / "g.frame"
    if before is not None:
        out.write_bytes(before)

    def small_disk() -> None:  # as good as full: no file may grow beyond 4 KiB
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    words = [sys.executable, "-m", "oscar", "codec", str(tmp_path / "g.npy"), "--codec", "zstd"]
    subprocess.run(words, check=True)  # its kernels are in the cache then, where they are not yet
    words += ["-o", str(out)]
    env = os.environ | NO_BYTECODE
    done = subprocess.run(words, capture_output=True, text=True, preexec_fn=small_disk, check=False, env=env)
    assert done.returncode == 2
    assert done.stderr.startswith(f"oscar codec: error: {out}: cannot write there (File too large)")
    assert done.stderr.count("\n") == 1
    assert (out.read_bytes() if out.exists() else None) == before
    assert names(tmp_path) - {"g.frame"} == {"g.npy"}


def test_no_room_for_compiled_kernels_is_said(tmp_path: Path) -> None:
    np.save(tmp_path / "g.npy", np.arange(100))

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = subprocess.run(
        [sys.executable, "-m", "oscar", "codec", str(tmp_path / "g.npy"), "--codec", "zstd"],
        env=os.environ | NO_BYTECODE | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        preexec_fn=small_disk,
        check=False,
    )
    assert done.returncode == 2
    assert "error: no room for the compiled kernels (File too large); make room, or set" in done.stderr


def test_no_room_says_what_to_do(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with pytest.raises(
        ConfigError, match=r"^/dev/full: cannot write there \(No space left on device\); make"
    ):
        write_json(Path("/dev/full"), [1])
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)  # a device is written to, not replaced


def test_a_link_is_followed_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_json(tmp_path / "link", 1)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "1\n"


LINKS: dict[str, Callable[[Path, Path], object]] = {
    "name": lambda at, to: None,
    "symlink": lambda at, to: at.symlink_to(to),
    "hard link": lambda at, to: at.hardlink_to(to),
}


@pytest.mark.parametrize("kind", LINKS)
def test_codec_does_not_write_over_what_it_reads(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    array, frame = tmp_path / "g.npy", tmp_path / "g.frame"
    np.save(array, np.arange(500))
    assert main(["codec", str(array), "-o", str(frame)]) == 0
    for source, words in ((array, [str(array)]), (frame, ["--decode", str(frame)])):
        before, out = source.read_bytes(), source if kind == "name" else tmp_path / f"{source.name}.link"
        LINKS[kind](out, source)
        assert main(["codec", *words, "-o", str(out)]) == 2
        assert "it is an input of this command" in capsys.readouterr().err
        assert source.read_bytes() == before


def test_every_command_spares_its_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # another run may be writing to the clone's build folder
    source = tmp_path / "x"
    source.write_text("{}")
    same = str(source)
    for words in (
        ["allreduce", same, "--json", same],
        ["allreduce", same, "--json", f"{same}.json", "--trace-out", f"{same}.json"],
        ["report", same, "--figure", same],
        ["scale", "--results", same, "--json", same],
        ["scale", same, "--figure", same],
        ["worker", same, "--json", same],
    ):
        assert main(words) == 2, words
        assert ": expected another file to write to" in capsys.readouterr().err, words
        assert source.read_text() == "{}"


def test_outputs_are_looked_at_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = str(tmp_path / "no" / "x.json")
    for words in (
        ["predict", "--values", "1M", "--nodes", "8", "--gbps", "1", "--json", nowhere],
        ["bench", "ratios", "--json", "/dev/null/x.json"],
        ["trial", "mutate", "--json", "/dev/null/x.json"],
    ):
        assert main(words) == 2, words
        out = capsys.readouterr()
        assert out.out == "", words
        assert out.err.count("\n") == 1
    with pytest.raises(ConfigError, match="this is a folder"):
        check_outputs([tmp_path])


HOLD = """
import sys
from oscar.files import output_folder
with output_folder(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_into_a_folder_is_refused_with_who_holds_it(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        refused = rf"another run is writing there \(process {holder.pid}: -c {tmp_path}\)"
        with pytest.raises(ConfigError, match=refused), output_folder(tmp_path):
            pass
        holder.kill()
    with output_folder(tmp_path):  # a killed run holds nothing
        pass
    assert names(tmp_path) == set()


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_a_name_of_an_open_file_is_written_through(name: str, tmp_path: Path) -> None:
    """As with `--json /dev/stdout > out.txt`: what is printed before and after stays in the file."""
    if not Path(name).exists():
        pytest.skip(f"there is no {name}")
    out = tmp_path / "out.txt"
    code = (
        "from pathlib import Path\nfrom oscar.files import check_outputs, write_text\n"
        f"print('before')\ncheck_outputs([Path({name!r})])\nwrite_text({name!r}, 'text')\nprint('after')"
    )
    with open(out, "wb") as file:
        inode = os.fstat(file.fileno()).st_ino
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert out.read_text() == "before\ntextafter\n"
    assert out.stat().st_ino == inode
    with pytest.raises(ConfigError, match="/dev/fd/987: cannot write there"):
        check_outputs([Path("/dev/fd/987")])


def test_an_error_of_something_else_is_not_said_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="other"), replacing(tmp_path / "a") as file:
        file.write((tmp_path / "other").read_bytes())
    assert names(tmp_path) == set()


def test_a_library_does_not_write_past_the_check() -> None:
    """numpy and Pillow write to a descriptor where there is one, and their errors on a full disk say less."""
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with pytest.raises(ConfigError, match="No space left on device"), replacing("/dev/full") as file:
        np.save(file, np.zeros(1 << 20))
