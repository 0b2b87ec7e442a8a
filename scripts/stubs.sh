#!/usr/bin/env bash
# Generates the Python stubs of every .proto file.
#   scripts/stubs.sh          writes them beside their .proto files
#   scripts/stubs.sh --check  fails if the ones that are there differ from what would be written
set -euo pipefail
cd "$(dirname "$0")/.."

python=${VENV:-.venv}/bin/python
mapfile -t sources < <(find protos -name '*.proto' | sort)

generate_into() {
  "$python" -m grpc_tools.protoc --proto_path=. \
    --python_out="$1" --pyi_out="$1" --grpc_python_out="$1" "${sources[@]}"
}

if [[ ${1:-} != --check ]]; then
  find protos \( -name '*_pb2.py' -o -name '*_pb2.pyi' -o -name '*_pb2_grpc.py' \) -delete
  generate_into .
  exit 0
fi

expected=$(mktemp --directory)
trap 'rm --recursive --force "$expected"' EXIT
generate_into "$expected"
if ! diff --recursive --brief --exclude='*.proto' --exclude='__init__.py' \
  --exclude='__pycache__' --exclude='py.typed' --exclude='*.md' "$expected/protos" protos; then
  echo "the stubs in protos/ are stale: run  make protos" >&2
  exit 1
fi
echo "Stubs of ${#sources[@]} .proto files are up to date"
