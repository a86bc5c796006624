# Two commands do everything on a machine with Rust, JDK 17, Maven and Python 3:
#   make demo   one cluster, one table set, three readers, compared
#   make test   every test
# What they build and download is kept outside the checkout, in $(ISOBAR_CACHE).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

ISOBAR_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/isobar
CARGO_TARGET_DIR ?= $(ISOBAR_CACHE)/target
export ISOBAR_CACHE CARGO_TARGET_DIR

ISOBAR := $(CARGO_TARGET_DIR)/debug/isobar
REQUIREMENTS := tests/requirements.txt
VENV := $(ISOBAR_CACHE)/venv-$(shell sha256sum $(REQUIREMENTS) 2>/dev/null | cut -c1-12)
PYTHON := $(VENV)/bin/python
JAR := spark-connector/target/isobar-spark-runtime-4.2_2.13.jar
SBT := project/sbt

.PHONY: help
help: ## Show this
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: tools
tools:
	@project/check-tools

.PHONY: build
build: tools ## Build the isobar binary
	cargo build --locked -p isobar

# A file of its own: the interpreter in the environment is a link to the system's, whose time is not ours to set.
$(VENV)/installed: $(REQUIREMENTS)
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install --no-compile --quiet --disable-pip-version-check -r $(REQUIREMENTS)
	@touch $@

.PHONY: venv
venv: tools $(VENV)/installed

.PHONY: jar
jar: tools ## Build the Spark connector's runtime jar
	$(SBT) "spark-connector/assembly"

# Cargo takes most of the time, and at its start and end not every processor: the rest is made beside it.
.PHONY: ready
ready: tools
	@project/beside $(ISOBAR_CACHE)/logs "cargo build --locked -p isobar" jar venv

.PHONY: demo
demo: ready ## Load real data, query three readers at one snapshot, compare
	$(PYTHON) examples/quickstart/demo.py --isobar $(ISOBAR) --jar $(JAR) --cache $(ISOBAR_CACHE)

# What is measured is built as a release is, and for processors of a kind: x86-64-v3 has AVX2, BMI2 and FMA, as servers
# have since 2013. Without LTO and with code for every x86-64, binaries are built faster and run slower.
TARGET_CPU ?= $(if $(filter x86_64,$(shell uname -m)),x86-64-v3,generic)
MEASURED := $(CARGO_TARGET_DIR)/release/isobar
.PHONY: release
release: tools ## Build the binary that is measured, with thin LTO; TARGET_CPU=oldest processor that it runs on
	RUSTFLAGS="-C target-cpu=$(TARGET_CPU)" cargo build --locked --release -p isobar

FACTOR ?= 0.1
BENCH := --peers-command "$(PYTHON) examples/tpch/peers.py" --jar $(JAR) --scale $(FACTOR)
.PHONY: benchmarks
benchmarks: release jar venv ## Measure TPC-H, scans and replica lag beside their peers, here; FACTOR=TPC-H scale
	$(MEASURED) bench tpch $(BENCH) --spark
	$(MEASURED) bench scan $(BENCH)
	$(MEASURED) bench lag

BENCH_ISOLATION := bench isolation --html isolation.html --json isolation.json
.PHONY: isolation
isolation: release jar venv ## Measure what batch load does to online latency, here: isolation.html
	PATH=$(VENV)/bin:$$PATH $(MEASURED) $(BENCH_ISOLATION) $(ISOLATION)

.PHONY: isolation-short
isolation-short: ready ## The same in some minutes, with the ordinary binary, for CI: a page with every arm, no limits
	PATH=$(VENV)/bin:$$PATH $(ISOBAR) $(BENCH_ISOLATION) --rounds 3 --tables 2 --rows 20000 --threads 4 \
		--warmup 1 --time 5 --throughput-time 3 --turns 2 --timeline 12 $(ISOLATION)

.PHONY: sysbench
sysbench: release ## Measure sysbench's mixes here, at 1 and 3 row replicas, beside MariaDB
	python3 examples/sysbench/compare.py --isobar $(MEASURED) $(SYSBENCH)

SCALE ?= 60000
KILLS ?= 0
.PHONY: reconcile
reconcile: ready ## Rehearse the nightly reconciliation under a live writer; SCALE=rows KILLS=times
	$(PYTHON) examples/reconciliation/rehearsal.py --isobar $(ISOBAR) --jar $(JAR) --cache $(ISOBAR_CACHE) \
		--scale $(SCALE) --kills $(KILLS)

# Clusters that are tested at a time: much of a test is waiting, so that one more than there are processors pays.
WORKERS ?= $(shell expr $$(nproc) + 1)
REPORTS := $(ISOBAR_CACHE)/reports

.PHONY: test
test: tools venv ## Run the tests: Rust, Scala, then whole clusters; WORKERS=clusters at a time
	rm -rf $(REPORTS) && mkdir -p $(REPORTS)
	$(MAKE) --output-sync=target -j2 compiled scala
	ISOBAR_PYTHON=$(PYTHON) cargo test --locked --workspace 2>&1 | tee $(REPORTS)/rust.log
	cargo test --locked -p isobar-simulation --features clock 2>&1 | tee -a $(REPORTS)/rust.log
	$(PYTHON) tests/cluster/shared_classes.py $(VENV)/spark.jsa
	$(PYTHON) -m pytest -q tests/cluster -n $(WORKERS) --isobar $(ISOBAR) --jar $(JAR) \
		--junitxml $(REPORTS)/cluster.xml
	$(PYTHON) tests/slowest.py $(REPORTS) spark-connector/target/test-reports

# Beside each other: the last crates are compiled one after another, and leave a processor to Scala.
.PHONY: compiled scala
compiled:
	cargo build --locked -p isobar
	cargo test --locked --workspace --no-run
	cargo test --locked -p isobar-simulation --features clock --no-run
scala:
	$(SBT) test "spark-connector/assembly"

QUERIES ?= 10000
SEED ?= 1
DIFFERENCES ?= differences
.PHONY: differential
differential: build venv ## Run random queries on rows, columns and MariaDB; QUERIES=how many SEED=first
	$(PYTHON) tests/differential/compare.py --isobar $(ISOBAR) --queries $(QUERIES) --seed $(SEED) --out $(DIFFERENCES)

ROUNDS ?= 20
.PHONY: nemeses
nemeses: build venv ## Kill, pause, cut off and empty nodes under load, and judge what clients saw; ROUNDS=how many SEED=of choices
	$(PYTHON) tests/nemeses/rounds.py --isobar $(ISOBAR) --rounds $(ROUNDS) --seed $(SEED)

.PHONY: upgrade
upgrade: build venv jar ## Upgrade a running cluster node by node under load; FROM=the binary of the release before
	$(PYTHON) tests/upgrade.py --from $(FROM) --isobar $(ISOBAR)

APPLICATIONS ?=
.PHONY: applications
applications: build venv ## Install, migrate and use real applications on MariaDB and here; APPLICATIONS=names, all without
	$(PYTHON) tests/applications/run.py --isobar $(ISOBAR) --applications $(APPLICATIONS)

.PHONY: answers
answers: build venv ## Ask two binaries every statement of every script, and print what differs; FROM=the other binary
	$(PYTHON) tests/answers.py --from $(FROM) --isobar $(ISOBAR)

.PHONY: planning
planning: build venv ## Time from packet to plan, by turns with another binary; FROM=that binary
	$(PYTHON) tests/planning.py --from $(FROM) --isobar $(ISOBAR)

SEEDS ?= 200
LENGTH ?= 60
SIMULATION := -p isobar-simulation --features clock
.PHONY: simulation
simulation: tools ## Run whole clusters in simulated time, under every fault; SEEDS=how many SEED=first LENGTH=simulated seconds of each
	cargo run --locked $(SIMULATION) -- --seeds $(SEEDS) --from $(SEED) --seconds $(LENGTH)

FLIPS ?= 100
.PHONY: flips
flips: build venv ## Flip bits in and truncate files of stopped nodes, and judge what is answered after; FLIPS=how many SEED=of choices
	$(PYTHON) tests/nemeses/flips.py --isobar $(ISOBAR) --flips $(FLIPS) --seed $(SEED)

TIMES ?= 5
.PHONY: failover
failover: build venv ## Kill and stop leaders and a columnar node TIMES times each, and measure for how long nothing is answered
	$(PYTHON) tests/nemeses/failover.py --isobar $(ISOBAR) --times $(TIMES)

HOURS ?= 1
.PHONY: soak
soak: build venv ## The random tests for HOURS: long seeds, random queries and nemeses in turn, from seeds not used before
	$(PYTHON) tests/soak.py --hours $(HOURS) --isobar $(ISOBAR)

BUGS ?= *
.PHONY: planted
planted: tools venv ## Plant each bug of tests/planted in a copy, and see its test fail; BUGS='names with *'
	$(PYTHON) tests/planted/run.py --copy $(ISOBAR_CACHE)/planted $(foreach bug,$(BUGS),'$(bug)')

TABLES := $(ISOBAR_CACHE)/tables.jsonl
.PHONY: tables
tables: build venv ## Run every client, script and column type, and print what works, agrees and comes back as tables
	$(SBT) "spark-connector/assembly"
	rm -f $(TABLES)
	ISOBAR_RESULTS=$(TABLES) $(PYTHON) -m pytest -q tests/cluster/test_client_table.py tests/cluster/test_scripts.py \
		tests/cluster/test_column_types.py --isobar $(ISOBAR) --jar $(JAR) || true
	$(PYTHON) tests/cluster/tables.py $(TABLES)

# Beside what is built to run, so that neither waits for the other nor makes it anew.
.PHONY: lint
lint: export CARGO_TARGET_DIR := $(ISOBAR_CACHE)/lint
lint: tools ## Check formatting, lints and the documentation's links
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --locked --workspace --no-deps
