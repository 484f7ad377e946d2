# Each target makes .venv and installs what it needs by itself; a second call finds it done.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo docs test test-torch lint types check browser bench house soak dist lock sbom audit clean

# Every file that is installed is in a lock with its hash; the project itself comes last, built by the locked hatchling.
# Where the lock has no wheel for a machine (an unusual one, or a newer Python), LOCK=no installs by name.
LOCK ?= yes
PIP   = $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check
ifeq ($(LOCK),yes)
install = echo "Installing the $$(grep -c == requirements/$(1).txt) packages of requirements/$(1).txt into $(VENV): this may take minutes ..." && \
	$(PIP) --require-hashes --only-binary :all: --no-deps --requirement requirements/$(1).txt && \
	echo "Installing editjudge itself ..." && $(PIP) --no-deps --no-build-isolation --editable .
else
install = echo "Installing editjudge with what $(1) needs into $(VENV): this may take minutes ..." && $(PIP) --editable '.[$(1)]'
endif
venv    = test -x $(BIN)/python || { echo "Making an environment in $(VENV) ..." && $(PYTHON) -m venv $(VENV); }

$(VENV)/.dev: pyproject.toml requirements/dev.txt
	@$(venv)
	@$(call install,dev)
	@touch $@

# The demo needs a fraction of what the tests do.
$(VENV)/.demo: pyproject.toml requirements/demo.txt
	@$(venv)
	@test -e $(VENV)/.dev || { $(call install,demo); } || { echo "No wheels for this machine in the lock? Try: make demo LOCK=no"; exit 1; }
	@touch $@

# Tools that make and check a release; nothing else needs them.
$(VENV)/.release: pyproject.toml requirements/release.txt $(VENV)/.dev
	@$(call install,release)
	@touch $@

# Atheris, for `make soak` alone.
$(VENV)/.fuzz: pyproject.toml requirements/fuzz.txt $(VENV)/.dev
	@$(call install,fuzz)
	@touch $@

demo: $(VENV)/.demo
	@$(BIN)/python examples/demo.py

# The documentation as a site, in site/. Nothing is fetched, neither now nor by its readers.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "wrote site/; to read it with its search: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site 8428"

test: lint types check

# What needs torch: an environment of its own, with a CPU build (+cpu; elsewhere than on Linux there is no other) that
# pip finds by its own settings. Where there is none it says so: a CUDA build would be gigabytes.
TORCH       := .venv-torch
TORCH_BUILD := 2.13.0$(if $(filter Linux,$(shell uname)),+cpu)
TORCH_PIP    = $(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all:
$(TORCH)/.installed: pyproject.toml requirements/torch.txt
	test -x $(TORCH)/bin/python || $(PYTHON) -m venv $(TORCH)
	@$(TORCH_PIP) torch==$(TORCH_BUILD) || { \
		echo "make test-torch: no CPU build of torch 2.13.0 is installed in $(TORCH) or found by pip: install it there," \
		"or name where its wheel is with PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL."; exit 1; }
	$(TORCH_PIP) --requirement requirements/torch.txt
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

# ms-swift and verl want other versions than TRL: an environment each, which sees what is in the first and has its own
# on top. One wheel of them is a source archive alone.
TRAINERS := swift verl
$(TORCH)-%/.installed: requirements/torch-%.txt $(TORCH)/.installed
	test -x $(TORCH)-$*/bin/python || $(PYTHON) -m venv $(TORCH)-$*
	$(TORCH)/bin/python -c "import site; print(site.getsitepackages()[0])" | \
		sed "s|^|import sys; sys.path.append('|; s|$$|')|" > \
		"$$($(TORCH)-$*/bin/python -c 'import site; print(site.getsitepackages()[0])')/torch.pth"
	$(TORCH)-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
		--no-binary antlr4-python3-runtime --requirement requirements/torch-$*.txt
	touch $@

test-torch: $(TORCH)/.installed $(TRAINERS:%=$(TORCH)-%/.installed)
	$(TORCH)/bin/python -m pytest tests_torch $(TRAINERS:%=--ignore=tests_torch/test_%.py)
	for name in $(TRAINERS); do $(TORCH)-$$name/bin/python -m pytest tests_torch/test_$$name.py || exit 1; done

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

check: $(VENV)/.dev browser
	$(BIN)/pytest -n 2 --dist loadgroup -m "not soak"

# Where we may, a browser is installed; where we may not, the tests that need one say how.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
		[ "$$(id -u)" != 0 ] || \
		(apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium) || true

# FiftyOne reads what `export --format fiftyone` writes, in an environment of its own: it brings a web server and a
# database. Its version is pinned, and what it needs besides is in no lock, as with torch.
FIFTYONE         := .venv-fiftyone
FIFTYONE_VERSION := 1.22.1
$(FIFTYONE)/.installed: Makefile
	test -x $(FIFTYONE)/bin/python || $(PYTHON) -m venv $(FIFTYONE)
	$(FIFTYONE)/bin/python -m pip install --quiet --disable-pip-version-check fiftyone==$(FIFTYONE_VERSION)
	touch $@

# MINUTES of load and fuzzing; the tests that are too long for `make test` come after them, at their own pace.
MINUTES ?= 20
soak: $(VENV)/.fuzz $(FIFTYONE)/.installed
	$(BIN)/python -m bench.soak --minutes $(MINUTES)
	$(BIN)/pytest -m soak

# About an hour on a quiet machine, into docs/benchmarks.json and docs/benchmarks.md; `make bench SECTIONS="web scale"` for
# some of it, SECTIONS=million for half an hour more.
bench: $(VENV)/.dev
	$(BIN)/python -m bench.peers.install
	$(BIN)/python -m bench.benchmarks $(SECTIONS)

# How the package reads, in figures, beside the lowest so far; tests/test_house.py lets none of them grow.
house: $(VENV)/.dev
	@$(BIN)/python -m bench.house

# Newest versions that fit pyproject.toml, for all platforms and Python 3.11 on; uv asks the index for every file's hash.
COMPILE = UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url pyproject.toml
lock: $(VENV)/.release
	$(COMPILE) --extra dev --output-file requirements/dev.txt
	$(COMPILE) --extra demo --constraint requirements/dev.txt --output-file requirements/demo.txt
	$(COMPILE) --extra release --constraint requirements/dev.txt --output-file requirements/release.txt
	$(COMPILE) --extra fuzz --constraint requirements/dev.txt --output-file requirements/fuzz.txt

# The wheel and the source archive, and a list of what was locked when they were made.
dist: $(VENV)/.release sbom
	$(BIN)/python -m build --no-isolation

# What is locked, as CycloneDX.
sbom: $(VENV)/.release
	mkdir -p dist
	$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible -o dist/editjudge.cdx.json requirements/dev.txt

# Known advisories of what is locked (asks a service over the network), and bandit's findings of medium severity and up.
audit: $(VENV)/.release
	$(BIN)/bandit --quiet --recursive --severity-level medium editjudge bench fuzz examples
	$(BIN)/pip-audit --strict --disable-pip --require-hashes --requirement requirements/dev.txt

clean:
	rm -rf $(VENV) $(TORCH) $(TORCH)-* $(FIFTYONE) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist demo site
