# make demo: set up, then run the templates plain and streaming and compare. make test: set up, then run the tests.
# make docs: the documentation as a site, in build/site. make gallery: before, for the report pages of its gallery; runs
# each workflow of the gallery twice, in five to ten minutes. make pictures: those of the documentation.
# make wheels: for x86_64 and aarch64, in dist. make release: with the source distribution, the site, and a check of all.
VENV ?= .venv
BIN := $(VENV)/bin
# Where scripts/setup.sh links or finds Rust.
export PATH := $(abspath $(VENV))/rust:$(HOME)/.cargo/bin:$(PATH)
SOURCES := scripts/setup.sh pyproject.toml node/Cargo.toml node/Cargo.lock $(shell find node/src -name '*.rs')

.PHONY: setup check demo test pytest cargo-test conformance lint lint-python lint-node docs gallery pictures wheels upstream release clean

$(VENV)/.installed: $(SOURCES)
	./scripts/setup.sh $(VENV)
	touch $@

$(VENV)/.test: $(SOURCES)
	./scripts/setup.sh $(VENV) test
	touch $(VENV)/.installed $@

$(VENV)/.lint: $(SOURCES)
	./scripts/setup.sh $(VENV) test,lint
	touch $(VENV)/.installed $(VENV)/.test $@

# What .ci/run calls. One core alone checks types or compiles tests, so these are done at the same time. Tests begin as
# soon as they are compiled.
setup: $(VENV)/.lint

check: $(VENV)/.lint
	+@$(MAKE) --no-print-directory --jobs=3 CLIPPY='$(LINTED)' lint-python lint-node pytest cargo-test

demo: $(VENV)/.installed
	$(BIN)/python -m benchmarks demo

test: $(VENV)/.test
	+@$(MAKE) --no-print-directory --jobs=2 pytest cargo-test

# Six at a time on two cores: many wait more than they compute, but each process has to import and collect all of them.
pytest: $(VENV)/.bytecode
	$(BIN)/python -m pytest -n 6 $(PYTEST_ARGUMENTS)

# On a clean checkout the tests are compiled once, rather than by six processes at the same time; what is wrong with them
# is told when they run. Programs that are started again and again need not be compiled each time, either.
unexport PYTHONDONTWRITEBYTECODE
$(VENV)/.bytecode: $(VENV)/.test
	-@$(BIN)/python -m pytest --collect-only -q > /dev/null
	@touch $@

# What `make lint` has compiled is used with CLIPPY only: without lint, Clippy may not be installed.
cargo-test: $(VENV)/.test
	$(CLIPPY) cargo test --quiet --manifest-path node/Cargo.toml

lint: $(VENV)/.lint
	+@$(MAKE) --no-print-directory --jobs=2 lint-python lint-node

lint-python: $(VENV)/.lint
	@failed=; for tool in 'ruff check .' 'ruff format --check .' 'python -m scripts.english' mypy; do \
		echo "$$tool"; $(BIN)/$$tool || failed=1; done; [ -z "$$failed" ]

# Clippy compiles the tests, which have all code in them: for `cargo clippy` all would be compiled once more. What only
# tests use is told when the program is compiled, and again here, where nothing has changed since.
LINTED := RUSTC_WORKSPACE_WRAPPER=$(abspath node/linted-rustc)
lint-node: $(VENV)/.lint
	cargo fmt --manifest-path node/Cargo.toml --check
	@told=$$(cargo build --profile quick --quiet --manifest-path node/Cargo.toml 2>&1) && [ -z "$$told" ] || { \
		echo "$$told"; exit 1; }
	$(LINTED) cargo test --quiet --manifest-path node/Cargo.toml --no-run

$(VENV)/.docs: $(SOURCES)
	./scripts/setup.sh $(VENV) docs
	touch $(VENV)/.installed $@

docs: $(VENV)/.docs
	$(BIN)/python -m scripts.reference
	$(BIN)/python -m scripts.protocol
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

gallery: $(VENV)/.test
	$(BIN)/python -m scripts.gallery

# They are of real runs.
pictures: $(VENV)/.test
	$(BIN)/python -m scripts.pictures
	$(BIN)/python -m scripts.gallery --pictures

wheels: $(VENV)/.installed
	./scripts/wheels.sh $(VENV) dist x86_64 aarch64

# SFIO_REPOSITORY is the address of the repository: then the links of the README and of the site are absolute.
release: $(SOURCES)
	./scripts/setup.sh $(VENV) test,docs,release
	touch $(VENV)/.installed $(VENV)/.test $(VENV)/.docs
	$(BIN)/python -m build --quiet --sdist --outdir dist .
	+@$(MAKE) --no-print-directory wheels gallery
	+@$(MAKE) --no-print-directory docs
	$(BIN)/twine check --strict dist/*

# The tests with the newest snapshot of StreamFlow, in an environment of its own; pip says that the plugin asks for another.
STREAMFLOW ?= git+https://github.com/alpha-unito/streamflow@master
upstream: export VENV := .venv-upstream
upstream:
	+@$(MAKE) --no-print-directory $(VENV)/.test
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check "$(STREAMFLOW)"
	$(VENV)/bin/python -m pip freeze | grep '^streamflow[ =]'
	+@$(MAKE) --no-print-directory pytest

# SUITE is a checkout of common-workflow-language/cwl-v1.2.
conformance: $(VENV)/.test
	$(BIN)/python -m tests.conformance $(SUITE)

clean:
	rm -rf $(VENV) .venv-upstream build dist *.egg-info node/target workflows/*/generated
