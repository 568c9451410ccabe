# make demo: set up, then run the templates plain and streaming and compare. make test: set up, then run the tests.
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml node/Cargo.toml node/Cargo.lock $(wildcard node/src/*.rs)

.PHONY: demo test lint clean

$(VENV)/.installed: scripts/setup.sh $(SOURCES)
	./scripts/setup.sh $(VENV) test
	touch $@

demo: $(VENV)/.installed
	$(BIN)/python -m benchmarks demo

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 $(PYTEST_ARGUMENTS)
	PATH="$$PATH:$$HOME/.cargo/bin" cargo test --quiet --manifest-path node/Cargo.toml

$(VENV)/.lint: $(VENV)/.installed
	./scripts/setup.sh $(VENV) test,lint
	touch $@

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH="$$PATH:$$HOME/.cargo/bin" cargo fmt --manifest-path node/Cargo.toml --check
	PATH="$$PATH:$$HOME/.cargo/bin" cargo clippy --quiet --manifest-path node/Cargo.toml --all-targets -- -D warnings

clean:
	rm -rf $(VENV) build dist *.egg-info node/target workflows/*/generated
