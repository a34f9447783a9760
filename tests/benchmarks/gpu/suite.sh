#!/bin/bash
# On the GPU machine: equality with tiny real weights, then rounds, closed loops and latencies of
# three 8B-shaped servers side by side (plain, specdeck, SGLang's own adaptive policy).
#   bash tests/benchmarks/gpu/suite.sh "CHUNK FOLDERS" ATTENTION PART...     results in $OUT
# Needs the folders named in README.md beside this file.
set -u
HERE=$(cd "$(dirname "$0")" && pwd); ROOT=$(cd "$HERE/../../.." && pwd)
OUT=${OUT:-/tmp/out}; mkdir -p "$OUT"; export LOGS=$OUT
CHUNKS=$1 ATTN=$2; shift 2; export ATTN
KIT=${KIT:-$ROOT/.gpu/kit}
. "$KIT/bootstrap.sh" $CHUNKS; . "$KIT/serve.sh"
# The plugin needs no install: package folders and an entry point on the path are enough.
SITE_OURS=/tmp/specdeck-site; mkdir -p $SITE_OURS/specdeck-0.1.0.dist-info
cp -r "$ROOT/engine_patch" $SITE_OURS/
printf 'Metadata-Version: 2.1\nName: specdeck\nVersion: 0.1.0\n' > $SITE_OURS/specdeck-0.1.0.dist-info/METADATA
printf '[sglang.srt.plugins]\nspecdeck = engine_patch.plugin:register\n' > $SITE_OURS/specdeck-0.1.0.dist-info/entry_points.txt
PLAIN_PATH=$PYTHONPATH
SIZES="1 2 4 6 8 12 16 20 24 28 32 40 48 56 64 80 96 112 128 144 160 176 192 208 224 240 256"
TIERS=${TIERS:-off,s1k1d2,s3k1d4,s2k4d16}
LAUNCH=${LAUNCH:---speculative-eagle-topk 4 --speculative-num-steps 2 --speculative-num-draft-tokens 16}

patched() { # NAME flags...: a server with the plugin
  local name=$1; shift
  export PYTHONPATH=$SITE_OURS:${FAULTS:+$FAULTS:}$HERE/plugin:$PLAIN_PATH SPECDECK_TIERS=$TIERS SPECDECK_TIER_MAX_BATCH=${TIER_MAX:-s2k4d16=32}
  launch "$name" --speculative-algorithm EAGLE3 $LAUNCH --speculative-adaptive "$@"
  export PYTHONPATH=$PLAIN_PATH; unset SPECDECK_TIERS SPECDECK_TIER_MAX_BATCH
}
tiny() { echo --model-path "$ROOT/.gpu/tiny/target" --load-format auto --dtype bfloat16 --max-total-tokens 60000 --context-length 2048; }

for part in "$@"; do case $part in
  equality)
    # With and without a deliberate fault.
    ACC= ; export ACC
    EQ="--speculative-draft-model-path $ROOT/.gpu/tiny/eagle3 --cuda-graph-bs-decode 1 2 4 8 16 32 48"
    PORT=30000 launch plain-tiny $(tiny); A=$SRV
    PORT=30100 patched specdeck-tiny $(tiny) $EQ; B=$SRV
    FAULTS=$HERE/control PORT=30200 patched specdeck-control $(tiny) $EQ; C=$SRV; FAULTS=
    compare() { timeout 150 python3 "$HERE/equality.py" --plain http://127.0.0.1:$1 --patched http://127.0.0.1:$2 \
      --tiers "$TIERS" --tie $3 --label "$ATTN $4" --out "$OUT/equality-$ATTN-$4.json"; }
    await plain-tiny $A && await specdeck-tiny $B && compare 30000 30100 0.25 bf16
    await specdeck-control $C && compare 30000 30200 0.25 control
    for pid in $A $B $C; do kill -KILL -- -$pid 2>/dev/null; done; sleep 2 ;;
  ranks)
    export ACC=2.0 ACCEPT_POSITIONS=0.544,0.544,0.544 ACCEPT_TREE=s2:2.0
    PORT=30100 patched specdeck-tp2 --speculative-draft-model-path "$KIT/models/llama8b-eagle3" --tp-size 2 \
      --max-total-tokens 115000 --cuda-graph-bs-decode 1 2 4 8 16 32 64; B=$SRV
    await specdeck-tp2 $B && timeout 200 python3 "$HERE/ranks.py" --patched http://127.0.0.1:30100 \
      --tiers "$TIERS" --label "$ATTN tp2" --out "$OUT/ranks-$ATTN-tp2.json"
    stop $B ;;
  speed)
    export ACC=2.0 ACCEPT_POSITIONS=${ACCEPT_POSITIONS:-0.544,0.544,0.544} ACCEPT_TREE=${ACCEPT_TREE:-s2:2.0}
    SMALL="--max-total-tokens 115000 --cuda-graph-bs-decode $SIZES"
    PORT=30000 launch plain $SMALL; A=$SRV
    PORT=30100 patched specdeck --speculative-draft-model-path "$KIT/models/llama8b-eagle3" $SMALL; B=$SRV
    C= ; if [ -n "${UPSTREAM:-}" ]; then
      export PYTHONPATH=$KIT/plugin:$HERE/plugin:$PLAIN_PATH
      PORT=30200 launch upstream $(flags adaptivefix) --max-total-tokens 115000; C=$SRV
      export PYTHONPATH=$PLAIN_PATH
    fi
    await plain $A; await specdeck $B || { tail -60 "$LOGS/specdeck.log"; }
    [ -n "$C" ] && await upstream $C
    timeout ${SPEED_LIMIT:-420} python3 "$HERE/rounds.py" --plain http://127.0.0.1:30000 \
      --patched http://127.0.0.1:30100 ${C:+--upstream http://127.0.0.1:30200} --tiers "$TIERS" \
      --clients ${CLIENTS:-1,4,16,32,64,128,256} --limit ${MEASURE_LIMIT:-300} --label "$ATTN" \
      --parts ${PARTS:-rounds,auto,latency} --out "$OUT/speed-$ATTN.json"
    stop $A; stop $B; [ -n "$C" ] && stop $C ;;
esac; done
grep -a -h -i -E "specdeck|Traceback|Error" "$OUT"/specdeck*.log | cut -c1-300 | sort | uniq -c | sort -rn | head -20
# Logs are large; their ends say enough.
for log in "$OUT"/*.log; do tail -c 200000 "$log" | gzip > "$log.gz"; rm "$log"; done
