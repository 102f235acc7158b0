"""Configuration files: what is refused with which error, overrides, and every file in configs/."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from oscar.config import Config, load_config
from oscar.errors import ConfigError
from oscar.shipped import folder
from oscar_studies.workloads import WORKLOADS
from oscar_studies.workloads.options import parse_options

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


def write(folder: Path, text: str) -> Path:
    path = folder / "c.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_every_shipped_file_builds(path: Path) -> None:
    config = load_config(path)
    methods = Counter(entry.method for entry, _, _ in config.compared())
    assert methods.keys() >= {"fp32", config.method}  # what OSCAR gains, and over what
    if config.nic == "compiled" and config.methods:  # a row takes seconds: all codecs side by side
        assert methods.keys() >= {"int16", "atalanta-dp", "zstd"}
        assert methods.total() >= 10
    trained = {contender.method for contender in config.compare.contenders}
    assert "zstd" in trained or "asc" not in trained  # a general compressor beside the coder
    entry = WORKLOADS[config.workload.name]
    parse_options(entry.options, config.workload.options, workload=config.workload.name)


def test_default_file_shows_every_default() -> None:
    path = next(p for p in CONFIGS if p.stem == "default")
    written = yaml.safe_load(path.read_text())
    methods = written.pop("methods")
    assert methods
    defaults = Config().model_dump(mode="json")
    del defaults["methods"]
    assert written == defaults


REFUSED = {
    "nodez: 4": "unknown key 'nodez'; did you mean 'nodes'?",
    "plan: {granul: 3}": "unknown key 'plan.granul'; did you mean 'granule'?",
    "methods: [{name: a, method: fp32, plan: x}]": "unknown key 'methods.0.plan'; did you mean 'plans'?",
    "methods: [{name: a, method: asc, asc: {contxt: none}}]": "method 'a': unknown key 'asc.contxt'",
    "methods: [{name: a, method: asc, asc: {interval_log2: 11}}]": "method 'a': asc: the key interval_log2",
    "methods: [{name: a, method: asd}]": "did you mean 'asc'",
    "methods: [{name: a, method: asc, plans: []}]": "at least one plan",
    "methods: [{name: a, method: asc, plans: [snakes]}]": "did you mean 'snake'",
    "methods: [{name: a, method: asc}, {name: a, method: fp32}]": "name of its own, 'a'",
    "threads: 0": "threads: expected auto or a whole number from 1 to 16, got 0",
    "threads: 17": "expected auto or a whole number from 1 to 16, got 17",
    "threads: true": "expected auto or a whole number from 1 to 16, got True",
    "threads: all": "expected auto or a whole number from 1 to 16, got 'all'",
    "nodes: many": "nodes: Input should be a valid integer, got 'many'",
    "nodes: true": "valid integer, got True",
    "nodes: '8'": "valid integer, got '8'",
    "nodes: 257": "less than or equal to 256",
    "quantiser: {bits: 7}": "quantiser.bits: expected auto or a whole number from 8 to 16, got 7",
    "quantiser: {bits: 12.0}": "expected auto or a whole number from 8 to 16, got 12.0",
    "{method: int16, quantiser: {bits: 16}, nodes: 2, schedule: {name: ring}}": (
        "int16 carries up to 16 bits, sums of 2 workers' 16 bits (quantiser.bits) have 17: "
        "set quantiser.bits to auto or 15"
    ),
    "{quantiser: {bits: 14}, methods: [{name: a, method: int16}]}": (
        "method 'a': configuration: int16 carries"
    ),
    "quantiser: {coarseness: 0}": "coarseness must lie in",
    "asc: {block_log2: 18}": "block_log2 must be 0 or 10 to 17, got 18",
    "asc: {interval_log2: 12}": "asc: the key interval_log2 is gone: tables change once a frame;",
    "asc: {map: fixed}": "asc: the key map is gone: contexts are fixed;",
    "asc: {context: both}": "asc.context: context both is gone: write class, which",
    "asc: {context: clas}": "asc.context: Input should be 'class' or 'none', got 'clas'",
    "asc: {sent_rows: 1}": "asc.sent_rows: Input should be a valid boolean, got 1",
    "link: {gbps: -1}": "link.gbps",
    "method: lzma": "method must be one of",
    "nic: fpga": "nic must be one of compiled, reference",
    "{nic: verilator, asc: {context: none}}": "has parameters of its own: leave the section asc out",
    "workload: [1]": "workload",
    "[1]": "expected a mapping of keys at the top, got list",
    "a: [": "not a readable YAML file",
    "nodes: 4\nseed: 1\nnodes: 5": "line 3, column 1: key 'nodes' is given again, it has a value from line 1",
    "plan: {name: snake, name: equal}": "key 'name' is given again",
    "nodes: 010": "line 1, column 8: 010: some readers of YAML take a leading zero for octal; write 10",
    "nodes: 1_000": "valid integer, got '1_000'",
    "nodes: 1:30": "valid integer, got '1:30'",
    "transport: {survive: yes}": "valid boolean, got 'yes'",
    "plan: &a {name: *a}": "an alias stands for what it is a part of",
    "plan: [&a equal, &a splitter]": "an anchor is given a second time",
    "[" * 5000: "nested deeper than 32 levels",
    "a: " + "9" * 5000: "number of at most 30 characters",
    "a: 1e999": "expected a finite number, got '1e999'",
    "a: &a [1,1,1,1,1,1,1,1,1]\n"
    + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdef")): (
        "aliases make it larger than"
    ),
    "1: 2": "expected text as a key, got 1",
    "nodes: !!python/name:os.system 3": "expected plain YAML",
    "link: {gbps: 1e-308}": "link.gbps: Input should be greater than or equal to",
    "link: {latency_us: 1.0e+308}": "link.latency_us: Input should be less than or equal to",
    'methods: [{name: "a\\nb", method: asc}]': "expected characters that can be printed, got 'a\\nb'",
}


RENAMED = "the key codec is called method now (the codec or scheme to reduce with); write method: "
REFUSED |= {
    "codec: zstd": f"configuration: {RENAMED}zstd",
    "{codec: zstd, method: asc}": f"configuration: {RENAMED}zstd",
    "codec: [1]": f"configuration: {RENAMED}NAME",
    "methods: [{name: a, method: asc}, {name: b, codec: fp32}]": f"methods.1: {RENAMED}fp32",
    "compare: {contenders: [{name: a, codec: qsgd}]}": f"compare.contenders.0: {RENAMED}qsgd",
}


FOR_ONE_COUNT = {
    "schedule: {name: file, file: s.json}": ("a schedule file", "schedule.name to direct or ring"),
    "schedule: {name: exchange, group: 4}": ("schedule.group 4", "schedule.group to null"),
    "schedule: {name: star, root: 2}": ("schedule.root 2", "schedule.root to 0"),
    "plan: {shares: [0.5, 0.25, 0.25]}": ("a list in plan.shares", "plan.shares to null or auto"),
    "topology: {kind: links, links: [{from: 0, to: 1}]}": ("kind links", "topology.kind to switch or ring"),
    "topology: {kind: groups, size: 2}": ("groups of topology.size 2", "topology.kind to switch"),
    "topology: {nodes: 8}": ("topology.nodes 8", "topology.nodes to null"),
    "topology: {gbps: [1, 2]}": ("a list in topology.gbps", "topology.gbps to one number"),
}


@pytest.mark.parametrize("text", FOR_ONE_COUNT, ids=lambda text: text[:40])
def test_what_fits_one_number_of_ranks_cannot_go_on_with_fewer(text: str, tmp_path: Path) -> None:
    path, (what, instead) = write(tmp_path, text), FOR_ONE_COUNT[text]
    load_config(path)
    with pytest.raises(ConfigError) as caught:
        load_config(path, ["transport.survive=true"])
    said = str(caught.value)
    for part in ("transport.survive: true cannot go with", what, "after a death there are fewer", instead):
        assert part in said


def test_what_fits_every_number_of_ranks_may_go_on_with_fewer(tmp_path: Path) -> None:
    for text in (
        "{plan: {shares: auto}, schedule: {name: direct, subframes: 2}}",
        "{topology: {kind: ring, gbps: 5}, schedule: hierarchical}",
        "topology: {kind: groups, size: 1}",
        "{topology: {message_us: 1}, schedule: star}",
    ):
        assert load_config(write(tmp_path, text), ["transport.survive=true"]).transport.survive


def test_the_old_key_is_refused_with_the_new_one_outside_files_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="write method: fp32"):
        load_config(write(tmp_path, "method: asc"), ["codec=fp32"])
    with pytest.raises(ConfigError, match="write method: lhc"):
        Config().variant(codec="lhc")
    for make in (lambda: Config(codec="fp32"), lambda: Config.model_validate({"codec": "fp32"})):  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="write method: fp32"):
            make()


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:40])
def test_refuses(text: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    said = str(caught.value)
    assert REFUSED[text] in said
    assert said.startswith(str(path))
    assert "\n" not in said


def test_a_call_refuses_what_a_file_with_this_key_does() -> None:
    with pytest.raises(ConfigError, match=r"^unknown key 'node'; did you mean 'nodes'\? valid keys"):
        Config(node=4)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"^nodes: Input should be a valid integer, got '4'$"):
        Config(nodes="4")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^unknown key 'transport.timeout'; did you mean 'timeout_s'\?"):
        Config.model_validate({"transport": {"timeout": 3}})
    with pytest.raises(TypeError, match=r"expected keyword arguments, as in Config\(key=value\), got dict"):
        Config({"nodes": 4})  # type: ignore[call-arg]


def test_numbers_are_those_of_yaml_1_2(tmp_path: Path) -> None:
    text = "nodes: 0x10\nseed: 0o17\nlink: {gbps: 1e1}\noutput: no"
    config = load_config(write(tmp_path, text))
    assert (config.nodes, config.seed, config.link.gbps, config.output) == (16, 15, 10.0, "no")


@pytest.mark.parametrize("section", ["methods", "contenders"])
def test_names_stay_in_one_line_whoever_makes_the_configuration(section: str) -> None:
    named = {section: [{"name": "a\nb", "method": "asc"}]}
    with pytest.raises(ValueError, match="expected characters that can be printed"):
        Config.model_validate(named if section == "methods" else {"compare": named})


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such file; shipped configurations: .*default"):
        load_config(tmp_path / "none.yaml")


def test_bare_names_are_shipped_configurations_unless_there_is_such_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "coarse").mkdir()  # a folder is no configuration
    assert load_config("coarse") == load_config(folder() / "coarse.yaml")
    (tmp_path / "train").write_text("nodes: 3")
    assert load_config("train") == Config(nodes=3)
    for near in ("coarsest", "configs/coarse.yaml"):
        with pytest.raises(ConfigError, match=f"{near}: no such file; did you mean 'coarse'"):
            load_config(near)


def test_folder_instead_of_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a readable YAML file"):
        load_config(tmp_path)


def test_overrides(tmp_path: Path) -> None:
    config = load_config(
        write(tmp_path, "nodes: 4"), ["nodes=2", "link.gbps=25", "plan.name=snake", "workload.trace=null"]
    )
    assert (config.nodes, config.link.gbps, config.plan.name) == (2, 25.0, "snake")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes", "expected key=value"),
        ("=3", "expected key=value"),
        ("nodes.x=3", "nodes is a value, not a section"),
        ("nodes=[", "the value is not YAML"),
        ("link.gbsp=3", "did you mean 'gbps'"),
    ],
)
def test_bad_overrides(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(write(tmp_path, "nodes: 4"), [text])


def test_an_empty_file_is_refused_and_an_empty_mapping_is_the_default(tmp_path: Path) -> None:
    for text in ("", "# nodes: 4\n", "null"):
        with pytest.raises(ConfigError, match="expected keys and values, got a file that holds none"):
            load_config(write(tmp_path, text), ["nodes=3"])
    assert load_config(write(tmp_path, "{}")) == Config()


def test_without_methods_the_configuration_is_compared_with_fp32() -> None:
    rows = [(entry.method, plan, config) for entry, plan, config in Config().compared()]
    assert [row[:2] for row in rows] == [("fp32", "equal"), ("asc", "interleave")]
    assert rows[1][2] == Config()


def test_rows_change_what_methods_say_and_nothing_else() -> None:
    method: dict[str, Any] = {"name": "m", "method": "asc", "asc": {"context": "none"}, "plans": ["equal"]}
    config = Config.model_validate({"asc": {"block_log2": 11}, "methods": [method]})
    ((_, _, row),) = config.compared()
    assert (row.asc.context, row.asc.block_log2, row.schedule.name) == ("none", 11, "network")
    assert row.model_dump(exclude={"asc", "schedule", "plan", "methods"}) == config.model_dump(
        exclude={"asc", "schedule", "plan", "methods"}
    )


def test_a_variant_keeps_what_was_left_to_its_default() -> None:
    """Hooks take the process group's timeout where none was set, also after `variant`."""
    for config in (Config(), Config().variant(nodes=4), Config(method="fp32").variant(transport={})):
        assert config.transport.given_timeout_s is None
        assert config.transport.timeout_s == 60
    given = Config.model_validate({"transport": {"timeout_s": 60.0}})
    assert given.transport.given_timeout_s == given.variant(nodes=4).transport.given_timeout_s == 60
