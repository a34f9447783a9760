#!/bin/bash
# `specdeck bench` on a server with the plugin, its thresholds applied, and automation on them
# measured against every fixed tier.  Results, report and logs in $OUT.
#   URL=http://127.0.0.1:30100 bash tests/benchmarks/gpu/bench.sh          a server that runs already
#   bash tests/benchmarks/gpu/bench.sh "CHUNK FOLDERS" ATTENTION           starts the kit's first
set -u
HERE=$(cd "$(dirname "$0")" && pwd); ROOT=$(cd "$HERE/../../.." && pwd)
OUT=${OUT:-/tmp/out}; mkdir -p "$OUT"
TIERS=${TIERS:-off,s3k1d4,s2k4d16}
CLIENTS=${CLIENTS:-1,4,16,64,128,256}
APPLIED=${APPLIED:-$CLIENTS}  # where automation is then measured; none: nowhere
NAME=${NAME:-bench}
# The control plane's own packages, where the machine has none: see README.md.
DECK=${DECK:-$ROOT/.gpu/deck}
PYTHON=${PYTHON:-python3}
deck() { PYTHONPATH=$ROOT:$DECK "$PYTHON" "$@"; }
# The commands of `specdeck`, which is not installed there.
command_of() { deck -c 'import importlib, sys; sys.exit(importlib.import_module(sys.argv[1]).run(sys.argv[2:]))' "$@"; }
bench() { command_of controlplane.bench_cli "$@"; }
fleet() { command_of controlplane.fleet_cli "$@"; }

SERVER=
if [ -z "${URL:-}" ]; then
  CHUNKS=$1 ATTN=$2; export ATTN
  . "$HERE/servers.sh"
  export ACC=2.0 ACCEPT_POSITIONS=${ACCEPT_POSITIONS:-0.544,0.544,0.544} ACCEPT_TREE=${ACCEPT_TREE:-s2:2.0}
  PORT=30100 patched specdeck --speculative-draft-model-path "$KIT/models/llama8b-eagle3" \
    --max-total-tokens 115000 --max-running-requests 264 --cuda-graph-bs-decode 1 2 4 8 16 24 32 48 64 80 96 112 128 160 192 224 256
  SERVER=$SRV
  await specdeck "$SERVER" || { tail -60 "$OUT/specdeck.log"; exit 1; }
  URL=http://127.0.0.1:30100
fi

WORK=$(mktemp -d)
cat > "$WORK/specdeck.toml" <<END
database = "$WORK/deck.sqlite3"
[listen]
port = 0
[[engines]]
id = "gpu"
url = "$URL"
poll_s = 0.2
stance = "shadow"
END
# Not by `deck`: to end a function that runs in the background leaves what it started.
PYTHONPATH=$ROOT:$DECK "$PYTHON" -m controlplane serve --config "$WORK/specdeck.toml" \
  > "$WORK/ready" 2> "$OUT/$NAME-deck.log" &
PLANE=$!
finish() {
  kill "$PLANE" 2>/dev/null; wait "$PLANE" 2>/dev/null
  [ -n "$SERVER" ] && kill -KILL -- "-$SERVER" 2>/dev/null
  rm -rf "$WORK"
}
trap finish EXIT
for _ in $(seq 300); do [ -s "$WORK/ready" ] && break; sleep 0.2; done
AT=$(deck -c 'import json, sys; print(json.loads(sys.stdin.readline())["url"])' < "$WORK/ready") || exit 1

# Scripts that measured on this server before may hold it still.
HELD=$(deck -c 'import sys, httpx; claim = httpx.get(sys.argv[1] + "/speculation").json()["claim"]; print(claim["holder"] if claim else "")' "$URL")
[ -z "$HELD" ] || for _ in $(seq 20); do
  fleet takeover gpu --holder "$HELD" --reason "to be benchmarked" --author bench --url "$AT" && break; sleep 1
done

begun=$(date +%s)
for _ in $(seq 20); do
  # Right after its start the control plane has not reached the engine yet.
  bench gpu --url "$AT" --tiers "$TIERS" --concurrency "$CLIENTS" --budget "${BENCH_BUDGET:-240s}" \
    --prompts "${PROMPTS:-ids}" --in "${IN:-128}" --out "${ANSWER:-256}" --author bench \
    --stream-interval "${STREAM_INTERVAL:-1}" \
    --json "$OUT/$NAME.json" 2> "$OUT/$NAME.progress" && break
  grep -q "has not answered yet" "$OUT/$NAME.progress" || { cat "$OUT/$NAME.progress"; exit 1; }
  sleep 1
done
tail -3 "$OUT/$NAME.progress"
echo "measured in $(($(date +%s) - begun)) s"
bench analyze "$OUT/$NAME.json" --json > "$OUT/$NAME-analysis.json"
bench export "$OUT/$NAME.json" --to thresholds -o "$OUT/$NAME-thresholds.json"
bench report "$OUT/$NAME.json" -o "$OUT/$NAME.html" || true
ID=$(bench list gpu --url "$AT" | sed -n '1s/benchmark \([^ ]*\) .*/\1/p')
bench apply gpu "$ID" --as active --yes --author bench --url "$AT" | tee "$OUT/$NAME-applied.txt" || exit 1
[ "$APPLIED" = none ] || deck -m tests.benchmarks.bench_applied --plane "$AT" --engine-id gpu --engine "$URL" --tiers "$TIERS" \
  --clients "$APPLIED" --window "${WINDOW:-3}" --in "${IN:-128}" --out "${ANSWER:-256}" \
  --prompts "${PROMPTS:-ids}" --stream-interval "${STREAM_INTERVAL:-1}" --bench "$OUT/$NAME.json" --label "$NAME" --json "$OUT/$NAME-auto.json"
