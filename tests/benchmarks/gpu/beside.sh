#!/bin/bash
# Several setups in one go: their servers stand side by side, so that their
# starts fall together (80-110 s).  They are loaded in turn where times are read, all at once where
# answers are compared.  Results and logs are packed into $OUT/results.tgz.
#   bash tests/benchmarks/gpu/beside.sh "CHUNK FOLDERS" times       four 8B-shaped servers, 139 GB
#   bash tests/benchmarks/gpu/beside.sh "CHUNK FOLDERS" answers     tiny real weights, all setups
# FA3 needs its library in place (the kit's README).  DRY=1 as in suite.sh.  What matters most comes
# first; BUDGET seconds after the start nothing new is measured, so that what there is gets packed.
set -u
export BUDGET=${BUDGET:-560}
CHUNKS=$1 PART=$2 ATTN=triton; export ATTN
. "$(dirname "$0")/servers.sh"
LOCAL=http://127.0.0.1
started=()
up() { started+=("$SRV"); }  # after each start: what to end
down() { for pid in "${started[@]}"; do kill -KILL -- "-$pid" 2>/dev/null; done; started=(); sleep 3; }
ready() { local name; for name in "$@"; do await "${name%:*}" "${name#*:}" || true; done; }

case $PART in
  times)
    export ACC=2.0 ACCEPT_POSITIONS=${ACCEPT_POSITIONS:-0.544,0.544,0.544} ACCEPT_TREE=${ACCEPT_TREE:-s2:2.0}
    export SPECDECK_HEADROOM=ignore
    # 80,000 tokens and graphs up to 128: what four servers leave room for.
    BIG="--max-total-tokens 80000 --mem-fraction-static 0.93 --cuda-graph-bs-decode 1 2 4 8 16 24 32 48 64 96 128"
    DRAFTER="--speculative-draft-model-path $KIT/models/llama8b-eagle3"
    names=()
    for setup in fa3:0 triton:10; do
      ATTN=${setup%:*} base=$((30000 + ${setup#*:}))
      PORT=$base launch "plain-$ATTN" $BIG $EXTRA; up; names+=("plain-$ATTN:$SRV")
      PORT=$((base + 1)) patched "specdeck-$ATTN" $DRAFTER $BIG; up; names+=("specdeck-$ATTN:$SRV")
    done
    ready "${names[@]}"
    read_rounds() { # LABEL BASE NUMBER TIERS more...
      local label=$1 base=$2 number=$3 tiers=$4; shift 4
      measure 120 "$HERE/rounds.py" --plain $LOCAL:$base --patched $LOCAL:$((base + 1)) --seconds 1.0 \
        --clients "${CLIENTS:-1,16,64,128}" --limit 100 --tiers "$tiers" --parts rounds \
        --label "$label" --out "$OUT/rounds-$label-$number.json" "$@"
    }
    both() { "$1" fa3 30000 "${@:2}"; "$1" triton 30010 "${@:2}"; }
    latency() {
      measure 60 "$HERE/rounds.py" --patched $LOCAL:$(($2 + 1)) --tiers s1k1d2,off --parts latency \
        --clients 64 --label $1 --out "$OUT/latency-$1.json"
    }
    with_auto() { read_rounds $1 $2 2 off,s1k1d2,s3k1d4 --auto "$OUT/rounds-$1-1.json"; }
    swing() {
      measure 120 "$HERE/swing.py" --plain $LOCAL:$2 --patched $LOCAL:$(($2 + 1)) \
        --tiers off,s1k1d2,s3k1d4 --thresholds "$OUT/rounds-$1-1.json" --high 128 --phases 4 --phase 3 \
        --repeats 2 --limit 50 --label $1 --out "$OUT/swing-$1.json"
    }
    both latency
    both read_rounds 1 off,s1k1d2,s3k1d4
    both read_rounds 3 off
    both with_auto
    both swing
    for number in $(seq 4 "${REPEATS:-5}"); do both read_rounds "$number" off; done
    BUDGET=$((BUDGET + 20))
    for label in fa3 triton; do
      measure 20 "$HERE/bounds.py" "$OUT"/rounds-$label-*.json --out "$OUT/bounds-$label.json"
    done
    down ;;
  answers)
    export ACC=
    EQ="--speculative-draft-model-path $ROOT/.gpu/tiny/eagle3 --cuda-graph-bs-decode 1 2 4 8 16 32 48"
    # NAME:BACKEND:BASE:flags; the plan stream is an environment variable of the switching server alone.
    setups=("triton:triton:31000:" "page64:triton:31010:--page-size 64" "fa3:fa3:31020:"
      "fa3-page64:fa3:31030:--page-size 64" "flashinfer:flashinfer:31040:"
      "prefill:triton:31050:--cuda-graph-backend-prefill tc_piecewise" "plan:triton:31060:")
    names=()
    for setup in "${setups[@]}"; do
      IFS=: read -r name ATTN base flags <<< "$setup"
      PORT=$base launch "plain-$name" $(tiny) --mem-fraction-static 0.5 $flags; up; names+=("plain-$name:$SRV")
      [ "$name" = plan ] && export SGLANG_ENABLE_OVERLAP_PLAN_STREAM=1
      PORT=$((base + 1)) patched "specdeck-$name" $(tiny) --mem-fraction-static 0.5 $EQ $flags; up
      names+=("specdeck-$name:$SRV"); unset SGLANG_ENABLE_OVERLAP_PLAN_STREAM
    done
    ATTN=triton
    FAULTS=$HERE/control PORT=31071 patched specdeck-control $(tiny) --mem-fraction-static 0.5 $EQ; up
    names+=("specdeck-control:$SRV"); FAULTS=
    PORT=31081 patched specdeck-switches $(tiny) --mem-fraction-static 0.5 $EQ; up
    names+=("specdeck-switches:$SRV"); SWITCHING=$SRV
    ready "${names[@]}"
    compare() { measure 150 "$HERE/equality.py" --plain $LOCAL:$2 --patched $LOCAL:$3 --tiers "$TIERS" \
      --tie 0.25 --label "$1" --out "$OUT/equality-$1.json"; }
    for setup in "${setups[@]}"; do
      IFS=: read -r name _ base _ <<< "$setup"
      compare "$name" "$base" $((base + 1)) &
    done
    wait
    compare control 31000 31071
    measure 300 "$HERE/switches.py" --patched $LOCAL:31081 --pid "$SWITCHING" --tiers "$TIERS" \
      --switches "${SWITCHES:-10000}" --limit 250 --ids 5,500 --label "triton, tiny" --out "$OUT/switches.json" &
    export PYTHONPATH=$ROOT:${PYTHONPATH:-}
    draws() { measure 150 "$HERE/sampled.py" --plain $LOCAL:31000 --patched $LOCAL:$1 --tiers "$2" \
      --samples "${SAMPLES:-1000}" --label "$3" --out "$OUT/sampled-$3.json"; }
    draws 31001 "$TIERS" switching
    draws 31071 off control
    wait
    down ;;
  *) echo "beside.sh: 'times' or 'answers', not '$PART'" >&2; exit 2 ;;
esac
[ -n "${DRY:-}" ] && exit 0
grep -a -h -i -E "specdeck: (off|tier left|plugin)|Traceback" "$OUT"/specdeck*.log | cut -c1-250 | sort | uniq -c | head -20
for log in "$OUT"/*.log; do tail -c 60000 "$log" > "$log.end"; rm "$log"; done
shopt -s nullglob  # a run of which nothing came still gives its logs
(cd "$OUT" && tar czf results.tgz ./*.json ./*.log.end && rm ./*.json ./*.log.end)
