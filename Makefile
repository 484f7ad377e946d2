# Each target makes .venv and installs what it needs by itself; a second call finds it done.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint types check browser bench soak clean

$(VENV)/.dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

# The demo needs a fraction of what the tests do.
$(VENV)/.demo: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -e $(VENV)/.dev || $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --editable '.[probes,web]'
	touch $@

demo: $(VENV)/.demo
	@$(BIN)/python examples/demo.py

test: lint types check

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

check: $(VENV)/.dev browser
	$(BIN)/pytest -n 2 -m "not soak"

# Where we may, a browser is installed; where we may not, the tests that need one say how.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
		[ "$$(id -u)" != 0 ] || \
		(apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium) || true

# MINUTES of load and fuzzing; the tests that are too long for `make test` come after them, at their own pace.
MINUTES ?= 20
soak: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	$(BIN)/python -m bench.soak --minutes $(MINUTES)
	$(BIN)/pytest -m soak

# Minutes each, on a quiet machine. Peers are measured where `python -m bench.peers.install` has put them.
bench: $(VENV)/.dev
	$(BIN)/python -m bench.startup
	$(BIN)/python -m bench.throughput --peers
	$(BIN)/python -m bench.faults
	$(BIN)/python -m bench.resume
	$(BIN)/python -m bench.store
	$(BIN)/python -m bench.scale --resume 100000
	$(BIN)/python -m bench.rewards
	$(BIN)/python -m bench.web --million
	$(BIN)/python -m bench.statistics

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist demo
