# Everything people do here, by name. Each target makes its own environment ready first; nothing else has to be installed.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup runtime demo demo-cluster test test-unit test-sim test-spark test-chaos test-cluster test-long matrix check format reference docs stubs bench bench-engines chaos pins clean

PYTHON_ENV := .venv/bin/python
PYTEST := $(PYTHON_ENV) -m pytest
# Spark tests mostly wait for processes to start, so two sets of them side by side take little more than half the time.
# Chaos takes as long side by side as one after the other (measured): its replicas fill both cores.
SIDE_BY_SIDE := -n 2 --dist worksteal
# Of each kind of server something; the whole ring, with jobs, failing ensembles and hosts, is `make test-cluster`.
CLUSTER_SLICE := $(patsubst %,tests/cluster/test_%.py,kafka_sink postgres_sink zookeeper_protocol)

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: runtime ## run the demo: kill replicas with -9 and see no gap in the output (about 2.5 minutes)
	@$(PYTHON_ENV) -m lockstep demo

demo-cluster: setup ## a job on three hosts: kill a host, pull a cable, kill ZooKeeper's leader and the coordinator (about 5 minutes)
	@$(PYTHON_ENV) -m lockstep demo --cluster --report demo-cluster-report.html

test: check ## run the checks, then the tests: unit, sim, spark, chaos, a slice of cluster (about 20 minutes on 2 cores)
	@$(PYTEST) $(SIDE_BY_SIDE) src benchmarks tests/unit tests/sim
	@$(PYTEST) $(SIDE_BY_SIDE) tests/spark
	@$(PYTEST) tests/chaos
	@$(PYTEST) $(CLUSTER_SLICE)

test-unit: setup ## run the unit tests and the examples in docstrings (seconds)
	@$(PYTEST) src benchmarks tests/unit

test-sim: setup ## run the simulator's tests (seeded, no Spark)
	@$(PYTEST) tests/sim

test-spark: setup ## run the tests that need a Spark session
	@$(PYTEST) $(SIDE_BY_SIDE) tests/spark

test-chaos: setup ## run the tests with real processes and real kills
	@$(PYTEST) tests/chaos

test-cluster: setup ## run the tests with real servers and hosts: Kafka, ZooKeeper, Postgres, Spark, HDFS, S3 (those that can be had here; about 9 minutes)
	@$(PYTEST) tests/cluster

matrix: setup ## every kind of job through everything that can happen to one; matrix-report.html (JOBS=joins,loop: only some; SEED=n: other records; SHORT=1: only the main events; RESULTS=folder: keep what each job came to, and go on there)
	@$(PYTHON_ENV) -m tests.matrix $(if $(SEED),--seed $(SEED)) $(if $(JOBS),--jobs "$(JOBS)") $(if $(PARTITIONS),--partitions $(PARTITIONS)) $(if $(SHORT),--short) $(if $(RESULTS),--results $(RESULTS))

test-long: setup ## run what `make test` has only a slice of: all seeds, crash windows, actions of chaos, kinds of state, Nexmark queries (a quarter of an hour)
	@$(PYTEST) $(SIDE_BY_SIDE) -m long tests/sim tests/unit tests/spark
	@$(PYTEST) -m long tests/chaos
	@$(PYTEST) -m long tests/cluster

check: setup ## check formatting, lint, types and layers
	@$(PYTHON_ENV) -m ruff format --check --quiet . || { echo "run 'make format'" >&2; exit 1; }
	@$(PYTHON_ENV) -m ruff check --quiet .
	@$(PYTHON_ENV) -m mypy --no-error-summary
	@$(PYTHON_ENV) scripts/layers.py

format: setup ## put the code into its format and mend what lint can mend
	@$(PYTHON_ENV) -m ruff format .
	@$(PYTHON_ENV) -m ruff check --fix .

reference: setup ## write docs/reference anew from the docstrings
	@$(PYTHON_ENV) scripts/reference.py

docs: setup ## build the documentation as a site in build/site, which needs no network to be read
	@$(PYTHON_ENV) scripts/docs_site.py

stubs: setup ## write the stub of F anew from the pinned pyspark
	@$(PYTHON_ENV) scripts/function_stubs.py

bench: setup ## measure the epoch and compare with other engines; results, page, docs/benchmarks.md (hours; BENCH=--quick: 40 minutes)
	-@$(PYTHON_ENV) -m lockstep bench epoch --save $(BENCH)
	-@$(PYTHON_ENV) -m benchmarks compare --save $(BENCH)
	@$(PYTHON_ENV) -m benchmarks docs

chaos: runtime ## hurt a job with two replicas for 10 minutes, check every row, write chaos-report.html (SEED=n: the same actions)
	@$(PYTHON_ENV) -m lockstep chaos run --minutes 10 --replicas 2 $(if $(SEED),--seed $(SEED))

bench-engines: setup ## install the engines that Lockstep is compared with, each in an environment of its own
	@$(PYTHON_ENV) -m benchmarks install flink bytewax pathway

setup: ## make .venv ready for development, Java included (done by the other targets too)
	@scripts/setup dev

runtime: ## make .venv ready to run Lockstep, without the tools for development
	@scripts/setup runtime

pins: setup ## write requirements*.txt anew from what is installed in .venv
	@$(PYTHON_ENV) scripts/pins.py

clean: ## remove everything that was made here, .venv included
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build out spark-warehouse src/*.egg-info
	@find src tests examples scripts -name __pycache__ -type d -prune -exec rm -rf {} +
