# Targets with one line of explanation each, after the letter of the group in which `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help setup torch everything extras allreduce test seeds mutants lint clean bench results tools vhdl cosim fpga formal sim stress \
  rtl verilator overlap \
  dist docs board ultrascale
SHELL := /bin/bash

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CONFIG ?= configs/default.yaml
MPI_CONFIG ?= configs/mpi.yaml
BENCH ?=
PAGE ?=
ARGS ?=
SEEDS ?= 50
EXTRAS := torch torchft frameworks gpu mpi secure peers cosim fpga board dist docs
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# $(call apt,PROGRAMS,PACKAGES): install Debian packages as root, or say the command, unless the programs are there.
apt = absent=; for program in $(1); do command -v $$program >/dev/null || absent="$$absent $$program"; done; \
  [ -z "$$absent" ] || \
  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
    echo "installing $(2)"; \
    apt-get -o DPkg::Lock::Timeout=300 update -qq && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends $(2) >/dev/null; \
  else echo "missing$$absent: sudo apt-get install -y $(2)" >&2; exit 1; fi

help: ##d list the targets
	@for group in 's Start' 'h Hardware' 'd Development'; do echo "$${group#* }"; \
	  awk -F ":.*##$${group%% *} " "/^[a-z%-]+:.*##$${group%% *} / { printf \"  make %-12s %s\\n\", \$$1, \$$2 }" Makefile; done

setup: $(STAMP) ##s make .venv and install the package with its tools

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found; give a Python with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "Python 3.10 or later is needed; give one with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { $(call apt,python3-venv,python3-venv); }
	@$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml | $(BIN)/python
	@echo "installing into $(VENV)"
	@$(PIP) -e '.[dev]'
	@echo "compiling the coders"
	@$(BIN)/python -m oscar.warm
	@touch $@

torch: $(VENV)/.torch ##s add torch and scikit-learn, for the CNN, transformer and embedding

# cocotb takes Python as a shared library, which Debian keeps apart.
libpython = $(BIN)/python -m find_libpython 2>/dev/null | grep -q . || { $(call apt,libpython,$(LIBPYTHON)); }
LIBPYTHON = libpython$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_python_version())')

everything: $(STAMP) ##s add every extra and tool that tests can use (apt as root; otherwise say the command)
	@$(call apt,ip tc nft ghdl iverilog verilator g++ berkeley-abc chromium,iproute2 nftables ghdl-mcode iverilog verilator \
	  g++ berkeley-abc chromium)
	@$(MAKE) --no-print-directory extras
	@$(libpython)
	@touch $(EXTRAS:%=$(VENV)/.%)

extras: | $(BIN)/python ##s install the packages of all extras, and nothing else
	@echo "installing the extras $(EXTRAS)"
	@$(PIP) -e '.[dev$(EXTRAS:%=,%)]'

allreduce: setup ##s compare all methods on real gradients (CONFIG=configs/default.yaml)
	@$(BIN)/oscar allreduce $(CONFIG) $(ARGS)

test: setup ##d run all tests
	@$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

seeds: setup ##d run each test that takes a seed with 50 new ones (SEEDS=50); hours for all, so name files (ARGS=tests/host)
	@$(BIN)/python -m pytest -n 2 --dist loadfile --seeds $(SEEDS) $(ARGS)

mutants: setup ##d change the code in one place at a time, and list the changes that no test notices (ARGS="--count 30 coding")
	@$(BIN)/python tests/mutants.py $(ARGS)

lint: setup ##d ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

results: setup ##d list the pages of docs/results with what changed since, or measure one again (PAGE=rate ARGS="--only 1")
	@$(BIN)/python docs/results/measure.py $(PAGE) $(ARGS)

bench: setup ##s list the measurements behind the figures, or run one (BENCH=ratios ARGS=...)
	@$(BIN)/oscar bench $(BENCH) $(ARGS)

tools: ##h install GHDL and Icarus with apt (as root; otherwise say the command)
	@$(call apt,ghdl iverilog,ghdl-mcode iverilog)

sim: setup verilator ##h the first look at the hardware: AllReduces of four NICs, clock by clock, against the host; 2 minutes at first
	@$(BIN)/python -m oscar_sim.allreduce --json build/sim/allreduce.json --figure build/sim/allreduce.svg $(ARGS)

overlap: setup ##s how much of an AllReduce a triggered list hides, by the time model (docs/results/overlap.md)
	@$(BIN)/oscar bench overlap $(ARGS)

stress: setup verilator ##d random stalls, resets and damage on converted RTL (ARGS="--clocks 1M --unit barrel_decoder"); compiles for 2 minutes at first
	@$(BIN)/python -m oscar_sim.stress --json build/sim/stress.json $(ARGS)

rtl: setup verilator ##h AllReduce of ten million values, coded by converted RTL under Verilator (configs/rtl.yaml)
	@$(BIN)/oscar allreduce configs/rtl.yaml $(ARGS)

# PRTE asks twice before it runs as root, as it does in containers; BLAS threads would only fight the ranks.
mpi-%: export OMPI_ALLOW_RUN_AS_ROOT = 1
mpi-%: export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1
mpi-%: export OMP_NUM_THREADS = 1
mpi-%: export OPENBLAS_NUM_THREADS = 1
mpi-%: $(VENV)/.mpi ##s AllReduce between as many processes over MPI, mpi-4 for example (configs/mpi.yaml)
	@$(BIN)/mpirun -n $* --oversubscribe --bind-to none --with-ft ulfm \
	  $(BIN)/python -m mpi4py -m oscar worker $(MPI_CONFIG) --transport mpi $(ARGS)

verilator: ##h install Verilator and a C++ compiler with apt (as root; otherwise say the command)
	@$(call apt,verilator g++,verilator g++ zlib1g-dev)

vhdl: setup $(if $(findstring --no-check,$(ARGS)),,tools) ##h VHDL and Verilog in build/hdl, a file for each block; GHDL checks the VHDL
	@$(BIN)/python -m oscar_hdl.flow.convert --out build/hdl $(ARGS)
	@$(BIN)/python -m oscar_sim.vectors --out build/hdl

cosim: $(VENV)/.cosim $(VENV)/.board tools ##d run the converted VHDL and Verilog against the host's coder (cocotb)
	@$(libpython)
	@$(BIN)/python -m oscar_sim.cosim --out build/cosim $(ARGS)

fpga: $(VENV)/.fpga ##h area and clock rate of the blocks on an ECP5 or, with ARGS="--part gw5ast_138c", a Gowin part, in build/fpga
	@$(BIN)/python -m oscar_hdl.flow.placement.place --out build/fpga $(ARGS)

ultrascale: $(VENV)/.fpga ##h the blocks' cells on UltraScale+ and units of a card by sums, in build/ultrascale
	@$(BIN)/python -m oscar_hdl.flow.placement.ultrascale --out build/ultrascale $(ARGS)

board: BOARD = build/board
board: $(VENV)/.board ##h the bitstream of the board's example: ECP5, 1000BASE-X, NIC of 1 unit, in build/board
	@$(BIN)/python -m oscar_hdl.flow.convert --no-check --top oscar_nic --with store_log2=10 block_log2=11 --out $(BOARD)/hdl
	@$(BIN)/python -m oscar_hdl.flow.board.ecp5_evn --nic $(BOARD)/hdl/verilog/oscar_nic/oscar_nic.v --out $(BOARD) $(ARGS)

formal: $(VENV)/.fpga ##d prove the rules of blocks' streams with yosys and ABC, in build/formal (ARGS=--light)
	@$(call apt,berkeley-abc,berkeley-abc)
	@$(BIN)/python -m oscar_hdl.flow.proofs.formal --out build/formal $(ARGS)

# Times, owners, order and modes in the files come from the last commit, or from here: equal trees, equal bytes.
dist: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
dist: VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' host/oscar/version.py)
dist: HDL = oscar-hdl-$(VERSION)
dist: UNLINKED = s/\[([^]]+)\]\([^)]*\.md[^)]*\)/\1/g
dist: $(VENV)/.dist ##d wheel, sdist and an archive of the VHDL, Verilog and .core files in dist/, reproducible
	@changed=$$(git status --porcelain) && test -z "$$changed" || { \
	  echo "a release is a commit; commit or remove first:" >&2; echo "$$changed" >&2; exit 1; }
	@rm -rf dist build/dist && mkdir -p build
	@echo "building sdist, and the wheel from it"
	@$(BIN)/python -m build --outdir dist . >build/dist.log 2>&1 || { cat build/dist.log >&2; exit 1; }
	@$(BIN)/python -m oscar_hdl.flow.convert --no-check --out build/dist/$(HDL)
	@$(BIN)/python -m oscar_sim.vectors --out build/dist/$(HDL)
	@cp LICENSE build/dist/$(HDL)
	@sed -zE '$(UNLINKED)' docs/how-to/archive.md >build/dist/$(HDL)/README.md
	@sed -zE '$(UNLINKED)' docs/reference/registers.md >build/dist/$(HDL)/datasheets/registers.md
	@cd build/dist/$(HDL) && find . -type f ! -name 'SHA256SUMS*' -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS.part && mv SHA256SUMS.part SHA256SUMS
	@tar --sort=name --mtime=@$$SOURCE_DATE_EPOCH --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
	  -C build/dist -c $(HDL) | gzip -9n >dist/$(HDL).tar.gz
	@cd dist && sha256sum *.whl *.tar.gz >SHA256SUMS && cat SHA256SUMS

docs: export NO_MKDOCS_2_WARNING = 1
docs: $(VENV)/.docs ##s build the documentation site in build/site; a warning or a dead link is an error
	@$(BIN)/mkdocs build

$(EXTRAS:%=$(VENV)/.%): $(VENV)/.%: $(STAMP)
	@echo "installing the $* extra"
	@$(PIP) -e '.[dev,$*]'
	@touch $@

clean: ##d remove results and caches, keep .venv
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find host hdl sim tests -name __pycache__ -type d -prune -exec rm -rf {} +
