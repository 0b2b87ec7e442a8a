#!/usr/bin/env bash
# Writes requirements.lock and those for development, pipelines, documents and builds from the ranges in pyproject.toml, keeping
# what is locked where that still fits (--upgrade takes the newest). No index, host or path of the
# machine that runs it gets into the files.
set -euo pipefail
cd "$(dirname "$0")/.."

compile() {
  "${VENV:-.venv}/bin/python" -m piptools compile --quiet --generate-hashes --allow-unsafe \
    --strip-extras --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
    --no-emit-trusted-host --no-emit-options "$@" pyproject.toml
}

compile --extra cluster --output-file requirements.lock "$@"
# The second file repeats the versions of the first, so that what is tested is what is shipped.
compile --extra cluster --extra dev --constraint requirements.lock --output-file requirements-dev.lock "$@"
# The third adds Spark, half a gigabyte, for those who run or test pipelines.
compile --extra cluster --extra dev --extra pipeline --constraint requirements-dev.lock \
  --output-file requirements-pipeline.lock "$@"
# The fourth builds the site of the documents, in an environment of its own.
compile --extra cluster --extra docs --constraint requirements-dev.lock --output-file requirements-docs.lock "$@"
# The fifth is what packages without a wheel are built with, this project's own included.
compile --all-build-deps --only-build-deps --constraint requirements-dev.lock --output-file requirements-build.lock "$@"
