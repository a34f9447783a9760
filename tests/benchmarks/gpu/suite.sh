#!/bin/bash
# On the GPU machine: equality with tiny real weights, then rounds, closed loops and latencies of
# three 8B-shaped servers side by side (plain, specdeck, SGLang's own adaptive policy).
#   bash tests/benchmarks/gpu/suite.sh "CHUNK FOLDERS" ATTENTION PART...     results in $OUT
# Needs the folders named in README.md beside this file.  DRY=1 prints the servers and measurements
# instead of starting them, and needs nothing.
set -u
CHUNKS=$1 ATTN=$2; shift 2; export ATTN
TAG=${TAG:-$ATTN}  # name of this setup in labels and results
. "$(dirname "$0")/servers.sh"

for part in "$@"; do case $part in
  equality)
    # With and without a deliberate fault.
    ACC= ; export ACC
    EQ="--speculative-draft-model-path $ROOT/.gpu/tiny/eagle3 --cuda-graph-bs-decode 1 2 4 8 16 32 48"
    PORT=30000 launch plain-tiny $(tiny) $EXTRA; A=$SRV
    PORT=30100 patched specdeck-tiny $(tiny) $EQ; B=$SRV
    FAULTS=$HERE/control PORT=30200 patched specdeck-control $(tiny) $EQ; C=$SRV; FAULTS=
    compare() { measure 150 "$HERE/equality.py" --plain http://127.0.0.1:$1 --patched http://127.0.0.1:$2 \
      --tiers "$TIERS" --tie $3 --label "$TAG $4" --out "$OUT/equality-$TAG-$4.json"; }
    await plain-tiny $A && await specdeck-tiny $B && compare 30000 30100 0.25 bf16
    await specdeck-control $C && compare 30000 30200 0.25 control
    for pid in $A $B $C; do kill -KILL -- -$pid 2>/dev/null; done; sleep 2 ;;
  sampled)
    # The same, at temperature 1: what is drawn comes from the plain server's distribution.
    ACC= ; export ACC
    EQ="--speculative-draft-model-path $ROOT/.gpu/tiny/eagle3 --cuda-graph-bs-decode 1 2 4 8 16 32 64"
    PORT=30000 launch plain-tiny $(tiny) $EXTRA; A=$SRV
    PORT=30100 patched specdeck-tiny $(tiny) $EQ; B=$SRV
    FAULTS=$HERE/control PORT=30200 patched specdeck-control $(tiny) $EQ; C=$SRV; FAULTS=
    draws() { measure 280 "$HERE/sampled.py" --plain http://127.0.0.1:30000 --patched http://127.0.0.1:$1 \
      --tiers "$2" --samples ${SAMPLES:-4000} --label "$TAG $3" --out "$OUT/sampled-$TAG-$3.json"; }
    await plain-tiny $A && await specdeck-tiny $B && draws 30100 "$TIERS" switching
    await specdeck-control $C && draws 30200 off control
    for pid in $A $B $C; do kill -KILL -- -$pid 2>/dev/null; done; sleep 2 ;;
  switches)
    # 10,000 switches under load, with the memory of host and card.
    export ACC=2.0 ACCEPT_POSITIONS=0.544,0.544,0.544 ACCEPT_TREE=s2:2.0
    PORT=30100 patched specdeck-switches --speculative-draft-model-path "$KIT/models/llama8b-eagle3" \
      --max-total-tokens 115000 --cuda-graph-bs-decode 1 2 4 8 16 32 64; B=$SRV
    await specdeck-switches $B && measure 590 "$HERE/switches.py" --patched http://127.0.0.1:30100 --pid $B \
      --tiers "$TIERS" --switches ${SWITCHES:-10000} --label "$TAG" --out "$OUT/switches-$TAG.json"
    stop $B ;;
  ranks)
    export ACC=2.0 ACCEPT_POSITIONS=0.544,0.544,0.544 ACCEPT_TREE=s2:2.0
    PORT=30100 patched specdeck-tp2 --speculative-draft-model-path "$KIT/models/llama8b-eagle3" --tp-size 2 \
      --max-total-tokens 115000 --cuda-graph-bs-decode 1 2 4 8 16 32 64; B=$SRV
    await specdeck-tp2 $B && measure 200 "$HERE/ranks.py" --patched http://127.0.0.1:30100 \
      --tiers "$TIERS" --label "$TAG tp2" --out "$OUT/ranks-$TAG-tp2.json"
    stop $B ;;
  speed)
    export ACC=2.0 ACCEPT_POSITIONS=${ACCEPT_POSITIONS:-0.544,0.544,0.544} ACCEPT_TREE=${ACCEPT_TREE:-s2:2.0}
    SMALL="--max-total-tokens 115000 --cuda-graph-bs-decode $SIZES"
    PORT=30000 launch plain $SMALL $EXTRA; A=$SRV
    PORT=30100 patched specdeck --speculative-draft-model-path "${DRAFT:-$KIT/models/llama8b-eagle3}" $SMALL; B=$SRV
    C= ; if [ -n "${UPSTREAM:-}" ]; then
      export PYTHONPATH=$KIT/plugin:$HERE/plugin:$PLAIN_PATH
      PORT=30200 launch upstream $(flags adaptivefix) --max-total-tokens 115000 $EXTRA; C=$SRV
      export PYTHONPATH=$PLAIN_PATH
    fi
    await plain $A; await specdeck $B || { tail -60 "$LOGS/specdeck.log"; }
    [ -n "$C" ] && await upstream $C
    # REPEATS runs on the same servers, for medians and bounds; a file each.
    for run in $(seq ${REPEATS:-1}); do
      file=$OUT/speed-$TAG.json; [ "${REPEATS:-1}" -gt 1 ] && file=$OUT/speed-$TAG-$run.json
      measure ${SPEED_LIMIT:-420} "$HERE/rounds.py" --plain http://127.0.0.1:30000 \
        --patched http://127.0.0.1:30100 ${C:+--upstream http://127.0.0.1:30200} --tiers "$TIERS" \
        --clients ${CLIENTS:-1,4,16,32,64,128,256} --limit ${MEASURE_LIMIT:-300} --label "$TAG" \
        --flavours "${FLAVOURS:-}" --parts ${PARTS:-rounds,auto,latency} --out "$file"
    done
    if [ "${REPEATS:-1}" -gt 1 ]; then
      measure 20 "$HERE/bounds.py" "$OUT"/speed-$TAG-[0-9].json --out "$OUT/bounds-$TAG.json"
    fi
    # 1 <-> 256 in phases of equal time on plain, with the thresholds of the rounds above.
    if [ -n "${SWING:-}" ]; then
      measure ${SPEED_LIMIT:-420} "$HERE/swing.py" --plain http://127.0.0.1:30000 \
        --patched http://127.0.0.1:30100 ${C:+--upstream http://127.0.0.1:30200} \
        --tiers ${SWING_TIERS:-off,s3k1d4} --thresholds "$file" --high ${SWING_HIGH:-256} \
        --limit ${MEASURE_LIMIT:-300} --label "$TAG" --out "$OUT/swing-$TAG.json"
    fi
    stop $A; stop $B; [ -n "$C" ] && stop $C ;;
esac; done
[ -n "${DRY:-}" ] && exit 0
grep -a -h -i -E "specdeck|Traceback|Error" "$OUT"/specdeck*.log | cut -c1-300 | sort | uniq -c | sort -rn | head -20
# Logs are large; their ends say enough.
for log in "$OUT"/*.log; do tail -c 200000 "$log" | gzip > "$log.gz"; rm "$log"; done
