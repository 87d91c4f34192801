# Thin targets: each calls dev/setup, which says what is missing, and then cargo.
# `up` and `test` share one profile and one set of features, so that the tree is compiled once.

CARGO_FLAGS := --locked
# Fail points take effect only where a test names one in the environment; release builds do not have them.
FEATURES := --features coregent-cli/failpoints
DATA_DIR ?= .coregent

.PHONY: up down test test-apart cluster cluster-down test-cluster model lint bench build sim

up: ## start the embedded control plane with a three-member PostgreSQL
	@dev/setup
	cargo build $(CARGO_FLAGS) --workspace --bins $(FEATURES)
	target/debug/coregent up --detach --wait --data-dir $(DATA_DIR) -f examples/postgres.yaml

down: ## stop what `up` started; the data stays
	target/debug/coregent down --data-dir $(DATA_DIR)

build:
	@dev/setup
	cargo build $(CARGO_FLAGS) --workspace --bins $(FEATURES)

test: ## run every test that can run on this machine
	@dev/setup test
	@if cargo nextest --version >/dev/null 2>&1; then \
		cargo nextest run $(CARGO_FLAGS) --workspace $(FEATURES); \
	else \
		cargo test $(CARGO_FLAGS) --workspace $(FEATURES); \
	fi
	@$(MAKE) --no-print-directory test-apart

test-apart: ## the end to end again with the controllers as a process of their own, which reach nothing but the API
	COREGENT_E2E_CONTROLLERS=apart cargo test $(CARGO_FLAGS) --workspace $(FEATURES) --test e2e -- \
		failover:: restart:: older_store:: switchover:: zombie:: damaged_data:: clock_set_back:: \
		--skip the_controllers_as_a_process_of_their_own

cluster: build ## start a real Kubernetes of three nodes on this machine (root, Debian; builds it once: 15 minutes)
	@dev/kubernetes/up 3

cluster-down: ## stop it; nothing of it stays
	@dev/kubernetes/down

test-cluster: ## the end to end on the cluster of `make cluster`
	@dev/kubernetes/test

model: ## explore the failover protocol within large bounds, and with each rule switched off (hours)
	COREGENT_MODEL=long cargo test $(CARGO_FLAGS) -p coregent-core --config 'profile.dev.package.coregent-core.opt-level=3' \
		--test it -- model::asked --exact --nocapture

lint: ## formatting and clippy
	cargo fmt --all --check
	cargo clippy $(CARGO_FLAGS) --workspace --all-targets $(FEATURES) -- -D warnings

bench: ## measure what the README promises; prints a table
	@dev/setup
	cargo bench --locked -p coregent-cli --bench promises

sim: ## a hundred thousand bad days in virtual time; SEEDS=0..1000 for fewer
	cargo run $(CARGO_FLAGS) --release -p coregent-sim -- --seeds $(or $(SEEDS),0..100000)
