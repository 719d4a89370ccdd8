# Every target sets itself up in .venv from the pinned constraints, and can be repeated.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup demo test campaign scale bench mutants lint docs clean
setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[dev]'
	@$(BIN)/python -c "import pyodbc" 2>/dev/null || sh tools/install_odbc.sh
	@$(BIN)/python -m compileall -q .venv/lib >/dev/null 2>&1 || true
	@touch $(READY)

# The main job on the local stack inside a real Airflow. KEEP=1 leaves everything up.
demo: $(READY)
	@$(BIN)/python -m airflow_provider_dpone.local.demo $(if $(KEEP),--keep)

# Everything CI runs.
test: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist loadfile

# Attempts struck on the wire and by killing and freezing workers, each recovered and checked: build/campaign/summary.json.
# CAMPAIGN=full strikes every pair of step and fault, of some CELLS or a SHARD (1/4) when given; SOAK_MINUTES soaks
# longer; PART runs one file of it. These are for the nightly workflow.
campaign: $(READY)
	@rm -f build/campaign/summary.json
	@DPONE_CAMPAIGN=$(CAMPAIGN) DPONE_CAMPAIGN_CELLS=$(CELLS) DPONE_CAMPAIGN_SHARD=$(SHARD) \
	  DPONE_SOAK_SECONDS=$$((60 * $(or $(SOAK_MINUTES),3))) \
	  $(BIN)/python -m pytest -s --show-capture=no $(or $(PART),tests/campaign) --junitxml=build/campaign/junit.xml

# One more attempt beside 100,000 ended ones: build/scale/summary.json.
scale: $(READY)
	@$(BIN)/python -m pytest -s tests/scale

# Speed, memory, protocol time, admissions and readers, as ratios of one run: build/bench/summary.json.
bench: $(READY)
	@$(BIN)/python -m tools.bench

# Breaks the product on purpose, one promise at a time; every mutant must turn a test red. ONLY=3,17 picks some.
mutants: $(READY)
	@$(BIN)/python -m tools.mutants $(if $(ONLY),--only $(ONLY))

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

docs: $(READY)
	@$(BIN)/python -m pytest -q tests/unit/test_docs.py

clean:
	rm -rf .venv build
