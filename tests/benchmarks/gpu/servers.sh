# Sourced by suite.sh, beside.sh and bench.sh: how servers are started and measurements run.
#   CHUNKS, ATTN: set before; DRY=1 prints instead of starting, and needs nothing
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); ROOT=$(cd "$HERE/../../.." && pwd)
OUT=${OUT:-/tmp/out}; mkdir -p "$OUT"; export LOGS=$OUT
KIT=${KIT:-$ROOT/.gpu/kit}
EXTRA=${EXTRA:-}   # flags for every server, plain ones too: --page-size 64, prefill graphs
if [ -n "${DRY:-}" ]; then
  launch() { echo "launch port ${PORT:-30000} $*"; SRV=0; }
  await() { :; }; stop() { :; }; flags() { echo "flags-$1"; }
  measure() { shift; echo "measure $*"; }
  kill() { :; }; sleep() { :; }
else
  . "$KIT/bootstrap.sh" $CHUNKS; . "$KIT/serve.sh"
  measure() { # SECONDS SCRIPT flags...
    local limit=$1 left=$((${BUDGET:-100000} - SECONDS)) with=python3; shift
    [[ $1 == *.sh ]] && with=bash
    [ "$left" -lt "$limit" ] && limit=$left
    [ "$limit" -lt 15 ] && { echo "MEASURE left out, no time: ${*: -4}"; return; }
    timeout "$limit" $with "$@" || echo "MEASURE ended with $? (124: after $limit s): ${*: -4}"
  }
fi
# The plugin needs no install: package folders and an entry point on the path are enough.
SITE_OURS=/tmp/specdeck-site; mkdir -p $SITE_OURS/specdeck-0.1.0.dist-info
cp -r "$ROOT/engine_patch" $SITE_OURS/
printf 'Metadata-Version: 2.1\nName: specdeck\nVersion: 0.1.0\n' > $SITE_OURS/specdeck-0.1.0.dist-info/METADATA
printf '[sglang.srt.plugins]\nspecdeck = engine_patch.plugin:register\n' > $SITE_OURS/specdeck-0.1.0.dist-info/entry_points.txt
PLAIN_PATH=${PYTHONPATH:-}
SIZES="1 2 4 6 8 12 16 20 24 28 32 40 48 56 64 80 96 112 128 144 160 176 192 208 224 240 256"
TIERS=${TIERS:-off,s1k1d2,s3k1d4,s2k4d16}
LAUNCH=${LAUNCH:---speculative-eagle-topk 4 --speculative-num-steps 2 --speculative-num-draft-tokens 16}

patched() { # NAME flags...: a server with the plugin
  local name=$1; shift
  export PYTHONPATH=$SITE_OURS:${FAULTS:+$FAULTS:}$HERE/plugin:$PLAIN_PATH SPECDECK_TIERS=$TIERS SPECDECK_TIER_MAX_BATCH=${TIER_MAX:-s2k4d16=32}
  launch "$name" --speculative-algorithm ${ALGORITHM:-EAGLE3} $LAUNCH --speculative-adaptive "$@" $EXTRA
  export PYTHONPATH=$PLAIN_PATH; unset SPECDECK_TIERS SPECDECK_TIER_MAX_BATCH
}
# Many stand side by side, so idle schedulers must not spin.
tiny() { echo --model-path "$ROOT/.gpu/tiny/target" --load-format auto --dtype bfloat16 --max-total-tokens 60000 --context-length 2048 --sleep-on-idle; }
# The launch flags of a chain, where an algorithm has no trees.
chain() { echo --speculative-eagle-topk 1 --speculative-num-steps 3 --speculative-num-draft-tokens 4; }
