#!/bin/bash
# Several setups in one go: their servers stand side by side, so that their
# starts fall together (80-110 s).  They are loaded in turn where times are read, all at once where
# answers are compared.  Results and logs are packed into $OUT/results.tgz.
#   bash tests/benchmarks/gpu/beside.sh "CHUNK FOLDERS" times       two backends: off, automation, latency, swing
#   bash tests/benchmarks/gpu/beside.sh "CHUNK FOLDERS" more        again, on the servers that KEEP=1 left, and
#                                                                   flashinfer and pages of 64 beside them
#   bash tests/benchmarks/gpu/beside.sh "CHUNK FOLDERS" bench       `specdeck bench`, on what KEEP=all left
#   ... auto, ... swing                                             automation, the swing, on its thresholds
#   ... profile                                                     of off; ends what was kept
#   bash tests/benchmarks/gpu/beside.sh "CHUNK FOLDERS" answers     tiny real weights, all setups
# SETUPS="fa3 triton" names the backends of `times`; SETS="fa3 flashinfer" picks among the setups of `answers`.
# CARDS=2 shares the servers out over two GPUs and loads both at once, two ranks too.  A backend with a card
# of its own (two backends on two cards, or SETUPS=fa3 on one) is read up to 256 clients and has a
# third server beside its pair: SGLang's adaptive policy, or with THIRD=stock one of a fixed chain
# without the plugin, with THIRD=plain a second plain one, with THIRD=none none; THIRD="upstream plain" names one
# for each backend.  FA3 needs its library in place (the kit's README).  AGAIN=256 is a fourth beside one backend:
# the plugin again, with that bound of rows.  DRY=1 as in suite.sh.  What matters most comes first; BUDGET seconds
# after the start nothing new is measured, so that what there is gets packed, which takes up to 25 s more.
set -u
export BUDGET=${BUDGET:-560}
CHUNKS=$1 PART=$2 ATTN=triton; export ATTN
. "$(dirname "$0")/servers.sh"
LOCAL=http://127.0.0.1 RESULTS=$ROOT/tests/benchmarks/results CARDS=${CARDS:-1} KEPT=/tmp/specdeck-kept
started=()
up() { started+=("$SRV"); }  # after each start: what to end
down() { for pid in "$@"; do kill -KILL -- "-$pid" 2>/dev/null; done; sleep 3; }
ready() { local name; for name in "$@"; do await "${name%:*}" "${name#*:}" || true; done; }
# The card of what is started next; with one, all share it.
card() { [ "$CARDS" -gt 1 ] && export CUDA_VISIBLE_DEVICES=$1; return 0; }
SETUPS=(${SETUPS:-fa3 triton}) THIRDS=(${THIRD:-upstream})
AGAIN=${AGAIN:-}
[ "$CARDS" -ge "${#SETUPS[@]}" ] || THIRDS=(none) AGAIN=  # shared cards have no room for it
third() { echo "${THIRDS[($1 - 30000) / 10]:-${THIRDS[0]}}"; }  # BASE: of that backend
benched() { echo "/tmp/specdeck-thresholds-$1.json"; }  # BACKEND: of specdeck bench
# For both backends: in turn on one card, both at once on two.
both() {
  local place jobs=(); for place in "${!SETUPS[@]}"; do
    if [ "$CARDS" -gt 1 ]; then "$1" "${SETUPS[place]}" $((30000 + 10 * place)) "${@:2}" & jobs+=($!)
    else "$1" "${SETUPS[place]}" $((30000 + 10 * place)) "${@:2}"; fi
  done
  [ ${#jobs[@]} -eq 0 ] || wait "${jobs[@]}"  # not for the watch of the cards, which has no end
}
DRAFTER="--speculative-draft-model-path $KIT/models/llama8b-eagle3"
pair() { # NAME BASE flags...: a plain server and one with the plugin, 8B-shaped
  local name=$1 base=$2; shift 2
  PORT=$base launch "plain-$name" "$@" $EXTRA; up; names+=("plain-$name:$SRV")
  PORT=$((base + 1)) patched "specdeck-$name" $DRAFTER "$@"; up; names+=("specdeck-$name:$SRV")
}
# Clock, power and what limits them, while times are read.
watch_cards() {
  [ -n "${DRY:-}" ] && return
  nvidia-smi --query-gpu=timestamp,index,clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_event_reasons.active \
    --format=csv,noheader,nounits -lms 500 > "$OUT/cards.csv" 2> /dev/null &
  WATCH=$!
}
simulated() {
  export ACC=2.0 ACCEPT_POSITIONS=${ACCEPT_POSITIONS:-0.544,0.544,0.544} ACCEPT_TREE=${ACCEPT_TREE:-s2:2.0}
  # Several servers on a card: each would count the others' memory as its own.
  export SPECDECK_HEADROOM=ignore
}
read_rounds() { # LABEL BASE NUMBER TIERS more...
  local label=$1 base=$2 number=$3 tiers=$4; shift 4
  measure 320 "$HERE/rounds.py" --plain $LOCAL:$base --patched $LOCAL:$((base + 1)) --seconds "${WINDOW:-1.0}" \
    --clients "${CLIENTS:-$GRID}" --limit 300 --tiers "$tiers" --parts rounds --flush \
    --label "$label" --out "$OUT/rounds-$label-$number.json" "$@"
}
swing() { # LABEL BASE NUMBER THRESHOLDS
  local theirs=; [ "$(third $2)" = upstream ] && theirs="--upstream $LOCAL:$(($2 + 2))"
  measure 280 "$HERE/swing.py" --plain $LOCAL:$2 --patched $LOCAL:$(($2 + 1)) $theirs \
    --tiers off,s1k1d2,s3k1d4 --thresholds "$4" --high "$HIGH" --phases 4 --phase 4 \
    --repeats "${SWINGS:-1}" --limit 200 --label $1 --out "$OUT/swing-$1-$3.json"
}
# What an off round does where its ratio is lowest, and a chain beside one without the plugin; PROFILE=off: the
# first alone.  Plain again at the end tells what time alone changes.
profile() { # keep last of the flavours: one stays until another is asked for
  local plain=$LOCAL:$2 ours=$LOCAL:$(($2 + 1)) beside=$LOCAL:$(($2 + 2)) kind cases=()
  kind=$(third $2)
  cases=(--case plain=$plain --case cold=$ours,off-cold)
  [ "$kind" = plain ] && cases+=(--case plain-again=$beside)
  [ -n "$AGAIN" ] && cases+=(--case again=$LOCAL:$(($2 + 3)),off-keep)
  [ "$kind" = stock ] && cases+=(--case stock=$beside)
  [ "$PROFILE" = off ] || cases+=(--case chain=$ours,s3k1d4 --case warm=$ours,off-warm)
  measure 150 "$HERE/kernels.py" "${cases[@]}" --case keep=$ours,off-keep --case plain-later=$plain \
    --clients "${PROFILE_AT:-64}" --label $1 --out "$OUT/kernels-$1.json"
}
bounds() {
  BUDGET=$((BUDGET + 20))
  for label in "$@"; do
    [ -z "${DRY:-}" ] && ! compgen -G "$OUT/rounds-$label-[0-9].json" > /dev/null && continue
    measure 20 "$HERE/bounds.py" "$OUT"/rounds-$label-[0-9].json --out "$OUT/bounds-$label.json"
  done
}
if [ "$CARDS" -ge "${#SETUPS[@]}" ]; then
  # With room for 256 SGLang often lets the 256th wait (docs/engine.md), so there is room for more.
  GRID=1,4,16,32,64,128,256 HIGH=256 TOKENS=${TOKENS:-115000}; [ -n "$AGAIN" ] && TOKENS=106000  # what a fourth leaves room for
  WIDE="160 192 224 256" ROOM="--max-running-requests 264"
  # flashinfer plans 256 requests of a chain in more than SGLang's default, 384 MiB
  export SGLANG_FLASHINFER_WORKSPACE_SIZE=$((1 << 30))
else  # 80,000 tokens and graphs up to 128: what four servers leave room for
  GRID=1,16,64,128 HIGH=128 TOKENS=80000 WIDE= ROOM=
fi
# Automation in the first read runs on thresholds of an earlier day, or of $EARLIER.
before() { echo "${EARLIER:-$RESULTS/gpu-2026-11-30-x2}/rounds-$1-1.json"; }

case $PART in
  times)
    simulated
    BIG="--max-total-tokens $TOKENS --mem-fraction-static 0.93 --sleep-on-idle $ROOM --cuda-graph-bs-decode 1 2 4 8 16 24 32 48 64 96 128 $WIDE"
    names=() thirds=()
    for place in "${!SETUPS[@]}"; do
      ATTN=${SETUPS[place]} base=$((30000 + 10 * place)); card "$place"
      pair "$ATTN" $base $BIG
      kind=$(third $base)
      if [ "$kind" != none ]; then
        export PYTHONPATH=$KIT/plugin:$HERE/plugin:$PLAIN_PATH
        case $kind in
          upstream) PORT=$((base + 2)) launch "upstream-$ATTN" $(flags adaptivefix) --max-total-tokens $TOKENS \
            --mem-fraction-static 0.93 --sleep-on-idle $ROOM $EXTRA ;;
          stock) PORT=$((base + 2)) launch "stock-$ATTN" $(flags chain) $BIG $EXTRA ;;
          plain) PORT=$((base + 2)) launch "plain-again-$ATTN" $BIG $EXTRA ;;
        esac
        export PYTHONPATH=$PLAIN_PATH
        up; thirds+=("$SRV"); names+=("${kind/plain/plain-again}-$ATTN:$SRV")
      fi
      if [ -n "$AGAIN" ]; then
        OWED_ROWS=$AGAIN PORT=$((base + 3)) patched "specdeck-again-$ATTN" $DRAFTER $BIG
        up; thirds+=("$SRV"); names+=("specdeck-again-$ATTN:$SRV")
      fi
    done
    ready "${names[@]}"
    watch_cards
    latency() {
      measure 60 "$HERE/rounds.py" --patched $LOCAL:$(($2 + 1)) --tiers s1k1d2,off --parts latency \
        --clients 64 --label $1 --out "$OUT/latency-$1.json"
    }
    stock() {
      case $(third $1) in
        stock) echo "--stock $LOCAL:$(($1 + 2))" ;;
        plain) echo "--stock $LOCAL:$(($1 + 2)) --stock-tier plain" ;;
      esac
    }
    all_tiers() { # BACKEND BASE NUMBER [FILE: automation on its thresholds]
      read_rounds $1 $2 $3 off,s1k1d2,s3k1d4 ${4:+--auto "$4"} $(stock $2)
    }
    earlier() { all_tiers $1 $2 1 "$(before $1)"; }
    fresh() { all_tiers $1 $2 2 "$OUT/rounds-$1-1.json"; }
    swings() { swing $1 $2 1 "$OUT/rounds-$1-1.json"; }
    again() {
      read_rounds $1 $2 $3 off $([ "$(third $2)" = plain ] && stock $2) ${FLAVOURS:+--flavours "$FLAVOURS"} \
        ${AGAIN:+--again $LOCAL:$(($2 + 3)) --again-what "$AGAIN rows to a call"}
    }
    idle() { read_rounds $1 $2 $3 s3k1d4 $(stock $2); }
    repeats() { for number in $(seq "$1" "$2"); do WINDOW=0.6 both again "$number"; done; }
    REPEATS=${REPEATS:-5}
    if [ "${READ:-}" = none ]; then :
    elif [ "${READ:-}" = off ]; then repeats 1 "$REPEATS"
    elif [ "${READ:-}" = idle ]; then for number in $(seq "$REPEATS"); do both idle "$number"; done
    else
      both latency
      if [ -n "${FRESH:-}" ]; then both all_tiers 1; both fresh
      else both earlier; [ "$REPEATS" -gt 1 ] && repeats 2 2; fi
      [ "${SWINGS:-1}" -gt 0 ] && both swings
      repeats 3 "$REPEATS"
    fi
    [ -n "${FLAVOURS:-}" ] && [ -z "${READ:-}" ] && CLIENTS=1,16,64 WINDOW=0.6 both read_rounds 9 off --flavours "$FLAVOURS"
    # Last: a server that was profiled may launch kernels more slowly from then on.
    [ -n "${PROFILE:-}" ] && both profile
    bounds "${SETUPS[@]}"
    if [ "${KEEP:-}" = all ]; then echo "${started[@]}" > $KEPT
    elif [ -n "${KEEP:-}" ]; then
      down "${thirds[@]}"; echo "${started[@]}" > $KEPT
    else down "${started[@]}"; fi ;;
  more)
    simulated
    names=()
    SECOND="--max-total-tokens 70000 --mem-fraction-static 0.93 --sleep-on-idle --cuda-graph-bs-decode 1 2 4 8 16 24 32 48 64 96 128"
    ATTN=fa3; card 0; pair fa3-page64 30020 $SECOND --page-size 64
    ATTN=flashinfer; card 1; pair flashinfer 30030 $SECOND
    ready "${names[@]}"
    others() { # NUMBER TIERS
      CLIENTS=1,16,64,128 read_rounds fa3-page64 30020 "$@" &
      CLIENTS=1,16,64,128 read_rounds flashinfer 30030 "$@" & wait
    }
    loops() { # and closed loops on what they say
      read_rounds $1 $2 6 off,s1k1d2,s3k1d4 --auto "$(before $1)" --parts rounds,auto
    }
    others 1 off,s1k1d2,s3k1d4
    both loops
    WINDOW=0.6 others 2 off
    for number in $(seq 7 "${REPEATS:-9}"); do
      WINDOW=0.6 both read_rounds "$number" off; WINDOW=0.6 others "$number" off
    done
    bounds "${SETUPS[@]}" fa3-page64 flashinfer
    down "${started[@]}" $(cat $KEPT) ;;
  bench)
    # The load generator takes two cores at most; the servers that are not asked sleep.
    thresholds() {
      URL=$LOCAL:$(($2 + 1)) NAME=bench-$1 measure 520 "$HERE/bench.sh"
      [ -n "${DRY:-}" ] || cp "$OUT/bench-$1-thresholds.json" "$(benched $1)"
    }
    watch_cards; both thresholds ;;
  auto)
    automation() { read_rounds $1 $2 1 off,s1k1d2,s3k1d4 --auto "$(benched $1)"; }
    watch_cards; both automation ;;
  swing)
    swings() { swing $1 $2 1 "$(benched $1)"; }
    watch_cards; both swings ;;
  profile) PROFILE=${PROFILE:-off}; watch_cards; both profile; down $(cat $KEPT) ;;
  answers)
    export ACC=
    EQ="--speculative-draft-model-path $ROOT/.gpu/tiny/eagle3 --cuda-graph-bs-decode 1 2 4 8 16 32 48"
    # NAME:BACKEND:BASE:flags
    setups=("triton:triton:31000:" "page64:triton:31010:--page-size 64" "fa3:fa3:31020:"
      "fa3-page64:fa3:31030:--page-size 64" "flashinfer:flashinfer:31040:"
      "prefill:triton:31050:--cuda-graph-backend-prefill tc_piecewise")
    # Beside so many the memory of a card says nothing about room for a tier.
    export SPECDECK_HEADROOM=ignore
    wanted() { [ -z "${SETS:-}" ] || [[ " triton $SETS " == *" $1 "* ]]; }  # triton has the control
    names=() turn=0
    # A small model as the drafter of itself; its answers are the plain triton server's.
    if wanted standalone; then
      ATTN=triton; card 1
      ALGORITHM=STANDALONE TIERS=off,s1k1d2,s3k1d4 LAUNCH=$(chain) PORT=31061 \
        patched specdeck-standalone $(tiny) --mem-fraction-static 0.5 \
        --speculative-draft-model-path "$ROOT/.gpu/tiny/target" --cuda-graph-bs-decode 1 2 4 8 16 32 48; up
      names+=("specdeck-standalone:$SRV")
    fi
    for setup in "${setups[@]}"; do
      IFS=: read -r name ATTN base flags <<< "$setup"
      wanted "$name" || continue
      card $((turn++ % 2))
      PORT=$base launch "plain-$name" $(tiny) --mem-fraction-static 0.5 $flags; up; names+=("plain-$name:$SRV")
      PORT=$((base + 1)) patched "specdeck-$name" $(tiny) --mem-fraction-static 0.5 $EQ $flags; up
      names+=("specdeck-$name:$SRV")
    done
    ATTN=triton
    card 0
    FAULTS=$HERE/control PORT=31071 patched specdeck-control $(tiny) --mem-fraction-static 0.5 $EQ; up
    names+=("specdeck-control:$SRV"); FAULTS=
    PORT=31081 patched specdeck-switches $(tiny) --mem-fraction-static 0.5 $EQ; up
    names+=("specdeck-switches:$SRV"); SWITCHING=$SRV
    if [ "$CARDS" -gt 1 ]; then
      unset CUDA_VISIBLE_DEVICES
      simulated
      PORT=31091 patched specdeck-tp2 $DRAFTER --tp-size 2 --max-total-tokens 115000 --mem-fraction-static 0.8 \
        --cuda-graph-bs-decode 1 2 4 8 16 32 64; up; names+=("specdeck-tp2:$SRV")
    fi
    START_LIMIT=${START_LIMIT:-240} ready "${names[@]}"
    compare() { measure 150 "$HERE/equality.py" --plain $LOCAL:$2 --patched $LOCAL:$3 --tiers "$TIERS" \
      --tie 0.25 --label "$1" --out "$OUT/equality-$1.json"; }
    if [ "$CARDS" -gt 1 ]; then
      measure 120 "$HERE/ranks.py" --patched $LOCAL:31091 --tiers "$TIERS" --label "triton, tp 2" --out "$OUT/ranks.json" &
    fi
    measure 330 "$HERE/switches.py" --patched $LOCAL:31081 --pid "$SWITCHING" --tiers "$TIERS" \
      --switches "${SWITCHES:-10000}" --limit 290 --ids 5,500 --label "triton, tiny" --out "$OUT/switches.json" &
    comparing=()
    for setup in "${setups[@]}"; do
      IFS=: read -r name _ base _ <<< "$setup"
      wanted "$name" || continue
      compare "$name" "$base" $((base + 1)) & comparing+=($!)
    done
    if wanted standalone; then
      TIERS=off,s1k1d2,s3k1d4 compare standalone 31000 31061 & comparing+=($!)
    fi
    wait "${comparing[@]}"
    compare control 31000 31071
    export PYTHONPATH=$ROOT:${PYTHONPATH:-}
    draws() { measure 150 "$HERE/sampled.py" --plain $LOCAL:31000 --patched $LOCAL:$1 --tiers "$2" \
      --samples "${SAMPLES:-1000}" --label "$3" --out "$OUT/sampled-$3.json"; }
    draws 31001 "$TIERS" switching
    draws 31071 off control
    wait
    down "${started[@]}" ;;
  *) echo "beside.sh: no part is called '$PART'" >&2; exit 2 ;;
esac
[ -n "${DRY:-}" ] && exit 0
shopt -s nullglob  # a run of which nothing came still gives its logs
grep -a -h -i -E "specdeck: (off|tier left|plugin)|Traceback" /dev/null "$OUT"/specdeck*.log | cut -c1-250 | sort | uniq -c | head -20
for log in "$OUT"/*.log; do tail -c 60000 "$log" > "$log.end"; rm "$log"; done
[ -n "${WATCH:-}" ] && kill $WATCH
(cd "$OUT" && set -- ./*.json ./*.csv ./bench-*.html ./bench-*.txt ./*.log.end && tar czf results.tgz "$@" && rm -f "$@")
