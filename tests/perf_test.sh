#!/bin/sh
# Runs the perf programs and ulyx_plan on the CPU: output, exit statuses, JSON, flags, refusals, and faults put
# under them on purpose.
#
#   tests/perf_test.sh DIRECTORY    where the programs are
#
# Ends with one line, '<n> passed, <m> failed', and exits non-zero where one failed.
# shellcheck disable=SC2086 # unquoted variables below hold one word a flag
set -u

here=$(dirname "$0")
# shellcheck source=tests/perf_checks.sh
. "$here/perf_checks.sh"

quick="-n 2 -w 1"

for program in seq_to_heads_perf heads_to_seq_perf; do
  passes "$program at 2 ranks" $program --ranks 2 -b 64 --heads 4 --head-dim 32 $quick
  check "$program: header names itself and the version" out_has "^# $program, ulyx [0-9]"
  check "$program: header says what the time is" out_has '^# time: .*maximum over ranks'
  check "$program: header names the transport" out_has '^# transport loopback'
  check "$program: no limit on the CPU" last_row_is limit% N/A

  passes "$program alone" $program --ranks 1 -b 64 --heads 4 --head-dim 32 $quick

  passes "$program, a sweep by factor" $program --ranks 3 -b 32 -e 256 -f 2 --heads 5 --head-dim 8 $quick
  check "$program: 4 rows by factor" rows_are 4
  passes "$program, a sweep by increment" $program --ranks 2 -b 1K -e 2K -i 512 --heads 2 --head-dim 8 $quick
  check "$program: 3 rows by increment" rows_are 3
  passes "$program, run cycles" $program --ranks 2 -b 32 --heads 2 --head-dim 8 -N 3 $quick
  check "$program: 3 rows by cycles" rows_are 3

  passes "$program, ragged with empty ranks" $program --ranks 4 --token-counts 5,0,9,3 --head-counts 2,3,0,1 \
    --head-dim 6 $quick
  check "$program: 17 tokens" last_row_is tokens 17
  passes "$program, grouped heads, two dims, batch" $program --ranks 4 -b 37 --heads 12 --kv-heads 3 --head-dim 24 \
    --value-dim 10 --batch 3 -d float8e4m3 $quick
  passes "$program, odd bytes of a head" $program --ranks 3 -b 29 --heads 7 --head-dim 13 -d uint8 $quick
  passes "$program, packed on both sides" $program --ranks 4 -b 50 --heads 8 --kv-heads 2 --head-dim 16 --value-dim 8 \
    --batch 2 --packed-in --packed-out $quick
  passes "$program, replicated tokens" $program --ranks 4 -b 37 --heads 12 --kv-heads 3 --head-dim 13 --value-dim 10 \
    --batch 3 -d uint8 --replicated 5 $quick
  check "$program: the shape names replicated tokens" out_has '^# shape: .*, 5 replicated tokens first'
  passes "$program, replicated tokens last, packed, with empty ranks" $program --ranks 4 --token-counts 0,5,9,0 \
    --head-counts 2,4,0,2 --kv-heads 4 --head-dim 6 --batch 2 --packed-in --packed-out --replicated 7 --replicated-last \
    $quick
  check "$program: 14 tokens without the replicated ones" last_row_is tokens 14
  for type in half float double int8 int64 bool int16; do
    passes "$program, $type" $program --ranks 2 -b 16 --heads 2 --head-dim 4 --type $type $quick
  done
  passes "$program, plain memory" $program --ranks 2 -b 32 --heads 4 --head-dim 8 --memory plain $quick
  check "$program: header names plain memory" out_has 'memory plain'
  passes "$program, -R 0" $program --ranks 2 -b 32 --heads 4 --head-dim 8 -R 0 $quick
  check "$program: -R 0 is plain memory" out_has 'memory plain'
  passes "$program, several exchanges a sample" $program --ranks 2 -b 32 --heads 4 --head-dim 8 -m 3 -a 1 -c 4 $quick
  check "$program: -a 1 is the mean" out_has '^# time: .*mean over ranks'
  run $program --ranks 2 -b 32 --heads 4 --head-dim 8 -c 0 $quick
  check "$program without checks: exit status 0" exits 0
  check "$program without checks says so" out_has '^# Out of bounds values : not checked$'

  passes "$program, every model at 8 ranks" $program --ranks 8 --model all --tokens-divide 256 -n 1 -w 0 -J "$json"
  check "$program: the table of models is there" out_has 'wan2.1-14b-720p$'
  check "$program: the last model is there" out_has 'ragged-smoke$'
  check_json "$program: JSON has a row a model" 'len(d["results"]) >= 11 and d["ranks"] == 8' "$json"
  check_json "$program: JSON has each model's replicated tokens, divided and rounded up" \
    '{r["model"]: r["replicated_tokens"] for r in d["results"] if r["replicated_tokens"] > 0} == {
      "hunyuanvideo-720p": 1, "flux1-dev-1024": 2, "cogvideox-5b": 1, "mochi-1": 1}' "$json"
  check_json "$program: JSON has mean and 99th percentile" \
    'all(r["time_min_us"] <= r["time_mean_us"] <= r["time_p99_us"] <= r["time_max_us"] for r in d["results"])' "$json"
  check_json "$program: JSON has times" 'all(r["time_min_us"] <= r["time_us"] <= r["time_max_us"] for r in d["results"])' \
    "$json"
  check_json "$program: JSON knows its data" 'd["out_of_bounds_values"] == 0 and d["failed"] is False' "$json"
  check_json "$program: JSON has null for what the CPU has not" \
    'all(r["limit_percent"] is None and r["nccl_us"] is None for r in d["results"])' "$json"
  passes "$program, a model with other tokens" $program --ranks 4 --model qwen2.5-7b-32k -b 100 $quick
  check "$program: the model's tokens are replaced" last_row_is tokens 100
  run $program --ranks 2 --model flux1-dev-1024 -b 16 --replicated 0 $quick
  check "$program: the model's replicated tokens are replaced" out_has '^# shape: model flux1-dev-1024, .* by 1, batch 1'

  run $program -h
  check "$program -h: exit status 0" exits 0
  for flag in -b -e -f -i -n -w -c -G -J -d -N -a -t -m -R -g --ranks --model --baseline --enqueue --memory --id-file \
    --token-counts --head-counts --packed-in --packed-out --tokens-divide --kv-heads --value-dim --batch \
    --replicated --replicated-last --transport --max-ctas --undisturbed --copy-streams; do
    check "$program -h names $flag" out_has "^  .*$flag"
  done

  refuses "unknown flag '--sizes'" $program --sizes 3
  refuses "unknown argument 'tokens'" $program tokens
  refuses "unknown type 'bf17'" $program --ranks 2 --type bf17
  refuses "unknown model 'nope'" $program --ranks 2 --model nope
  refuses "takes a number, not '4x'" $program --ranks 4x
  refuses "takes a number, not ''" $program --ranks=
  refuses "takes a value" $program --ranks
  refuses "takes no value" $program --ranks 2 --packed-in=1
  refuses "ranks must be 1 to 64, not 65" $program --ranks 65
  refuses "exclude each other" $program --ranks 2 -b 8 -e 16 -f 2 -i 2
  refuses "must not be below" $program --ranks 2 -b 16 -e 8
  refuses "3 tokens over 4 ranks" $program --ranks 4 -b 3 -e 12
  refuses "cannot split 2 heads" $program --ranks 4 -b 64 --heads 2
  refuses "one count a rank, 4, not 2" $program --ranks 4 --token-counts 1,2
  refuses "separated by commas" $program --ranks 2 --token-counts 1,,2
  refuses "separated by commas" $program --ranks 2 --head-counts 1,2,
  refuses "kvHeads" $program --ranks 2 -b 64 --heads 6 --kv-heads 4
  refuses "needs --replicated or --model" $program --ranks 2 -b 64 --replicated-last
  refuses "and 9223372036854775807 replicated ones" $program --ranks 2 -b 64 --replicated 9223372036854775807
  refuses "needs GPUs" $program --ranks 2 -G 2
  refuses "needs GPUs" $program --ranks 2 --baseline 1
  refuses "needs GPUs" $program --ranks 2 --enqueue 1
  refuses "CPU" $program --ranks 2 -g 2
  refuses "processes" $program --ranks 2 --id-file "$scratch/id"

  run $program --ranks 2 -b 32 -J "$scratch/nowhere/results.json"
  check "$program: JSON to nowhere: exit status 3" exits 3
  check "$program: JSON to nowhere: one line" err_is_one_line
done

# --- The runtime's configuration, and what each plan makes of it ------------------------------------------------

configured="--transport loopback --max-ctas 8 --undisturbed --copy-streams 2"
for program in seq_to_heads_perf heads_to_seq_perf all_gather_rows_perf reduce_scatter_rows_perf all_to_all_rows_perf \
  conv_halo_perf state_chain_perf "state_chain_perf --backward"; do
  passes "$program, configured" $program --ranks 2 -b 32 $configured $quick -J "$json"
  check "$program: the columns are named" out_has '^# .*  limit%  *via  *pred$'
  check "$program: the row says how it moved" last_row_is via loopback
  check "$program: loopback predicts nothing" last_row_is pred N/A
  check_json "$program: JSON says how, why and how long" \
    'all(r["via"] == "loopback" and isinstance(r["reason"], str) and r["predicted_us"] is None and "limit_us" in r
      for r in d["results"])' "$json"
  refuses "takes auto|loopback|nccl|direct|copy_engine, not 'pigeon'" $program --ranks 2 --transport pigeon
  refuses "not ''" $program --ranks 2 --transport=
  refuses "not 'AUTO'" $program --ranks 2 --transport AUTO
done
passes "transport auto on the CPU" seq_to_heads_perf --ranks 2 -b 32 --transport auto $quick
check "transport auto on the CPU is loopback" last_row_is via loopback
for transport in nccl direct copy_engine; do
  refuses "are for GPUs" seq_to_heads_perf --ranks 2 --transport $transport
done
refuses "max-ctas must be 0 to" seq_to_heads_perf --ranks 2 --max-ctas -1
refuses "copy-streams must be 0 to" seq_to_heads_perf --ranks 2 --copy-streams 2147483648
refuses "takes no value" seq_to_heads_perf --ranks 2 --undisturbed=1
export ULYX_TRANSPORT=pigeon
run seq_to_heads_perf --ranks 2 -b 32 $quick
check "without --transport the environment decides: exit status 3" exits 3
check "without --transport the environment decides: says so" err_has ULYX_TRANSPORT
passes "--transport outdoes the environment" seq_to_heads_perf --ranks 2 -b 32 --transport loopback $quick
unset ULYX_TRANSPORT

# --- Sizes and bytes ------------------------------------------------------------------------------------------

run seq_to_heads_perf --ranks 4 -b 10 --heads 7 --head-dim 4 $quick
check "7 heads, 10 tokens over 4 ranks: the busiest has 3 tokens x 21 heads x 8 bytes" last_row_is size 504
run heads_to_seq_perf --ranks 4 -b 10 --heads 7 --head-dim 4 $quick
check "7 heads, 10 tokens over 4 ranks: the busiest has 10 tokens x 2 heads x 8 bytes" last_row_is size 160

joint="--heads 4 --head-dim 4 --replicated 6"
run seq_to_heads_perf --ranks 2 -b 10 $joint $quick -J "$json"
check_json "6 replicated tokens: all in the tensors, none of them cross to the heads" \
  'd["results"][0]["size_bytes"] == (5 + 6) * 12 * 8 and d["results"][0]["remote_bytes"] == 5 * 6 * 8' "$json"
run heads_to_seq_perf --ranks 2 -b 10 $joint $quick -J "$json"
check_json "6 replicated tokens: the peer's heads of them come back" \
  'd["results"][0]["size_bytes"] == (10 + 6) * 2 * 8 and d["results"][0]["remote_bytes"] == (5 + 6) * 2 * 8' "$json"
run ulyx_plan exchange --ranks 2 --tokens 10 $joint --json
cp "$out" "$json"
check_json "6 replicated tokens: so says ulyx" \
  'd["seq_to_heads_bytes"][0] == [11 * 6 * 8, 5 * 6 * 8] and d["heads_to_seq_bytes"][0] == [11 * 2 * 8] * 2' "$json"

# --- Faults put under the programs ----------------------------------------------------------------------------

fault_library=$bin/libperf_fault.so
if [ -e "$fault_library" ] && ! ldd "$fault_library" | grep -q -e libasan -e libtsan -e libubsan; then
  # faulty FAULT AFTER PROGRAM [FLAG...]
  faulty() {
    ULYX_FAULT=$1
    ULYX_FAULT_AFTER=$2
    program=$3
    shift 3
    command_line="ULYX_FAULT=$ULYX_FAULT ULYX_FAULT_AFTER=$ULYX_FAULT_AFTER $program $*"
    ULYX_FAULT=$ULYX_FAULT ULYX_FAULT_AFTER=$ULYX_FAULT_AFTER LD_PRELOAD=$fault_library "$bin/$program" "$@" \
      >"$out" 2>"$err"
    status=$?
    unset ULYX_FAULT ULYX_FAULT_AFTER
  }
  for program in seq_to_heads_perf heads_to_seq_perf; do
    for fault in byte canary stale; do
      for after in 0 1; do # 1: the checked exchange is right, the timed one is not
        faulty $fault $after $program --ranks 2 -b 32 --heads 4 --head-dim 8 -n 1 -w 0 -J "$json"
        check "$program with a $fault fault from call $after on: exit status 1" exits 1
        check "$program with a $fault fault from call $after on: the footer says FAILED" \
          out_has '^# Out of bounds values : [1-9][0-9]* FAILED$'
        check "$program with a $fault fault from call $after on: the row has wrong bytes" rows_are_wrong
        check_json "$program with a $fault fault: so has the JSON" 'd["out_of_bounds_values"] > 0' "$json"
      done
    done
    faulty refuse 1 $program --ranks 3 -b 32 --heads 4 --head-dim 8 -n 4 -w 0 -T 1 -J "$json"
    check "$program with a refused call on one rank: exit status 3" exits 3
    check "$program with a refused call on one rank: says so" err_has 'remote error'
    check_json "$program with a refused call on one rank: the JSON is whole" 'd["failed"] is True' "$json"
  done
else
  echo "SKIPPED: faults under the programs (no libperf_fault.so, or one with a sanitizer, which cannot be preloaded)"
fi

# --- The comparison of transports -----------------------------------------------------------------------------

# compare FLAG...: perf/compare.sh with stand-ins of python3 before the real one, where there are any.
compare() {
  command_line="compare.sh $*"
  PATH=$scratch/fake:$PATH sh "$here/../perf/compare.sh" "$@" >"$out" 2>"$err"
  status=$?
}
compare --gpus 0 -o "$scratch/compare" "$bin"
check "compare on loopback: exit status 0" exits 0
check "compare on loopback: says that its numbers mean nothing" out_has '^# .*its numbers mean nothing'
check "compare on loopback: a row an operation and shape" rows_are 4
check "compare on loopback: auto is loopback, the others are N/A" \
  out_has '^  eager  *heads_to_seq  *17  *5  *8  *N/A  *N/A  *N/A  *N/A  *N/A  *N/A  *[0-9.]*  *loopback  *N/A  *N/A  *N/A  *N/A$'
check "compare on loopback: says why direct is N/A" out_has '^# N/A: direct: .*for GPUs'
check_json "compare on loopback: JSON has the rows" \
  'len(d["results"]) == 4 and all(r["via"] == "loopback" and r["ulyx_auto_us"] > 0 and r["ulyx_direct_us"] is None
    and r["limit_us"] is None and r["wrong"] == [] for r in d["results"])' "$scratch/compare/compare.json"
compare --gpus 0 --sweep -o "$scratch/compare" "$bin"
check "a sweep on loopback: exit status 0" exits 0
check "a sweep on loopback: a row a size" rows_are 10
check "a sweep on loopback: nothing to hold auto against" out_has '^# Worst of auto: N/A'
check_json "a sweep on loopback: sizes grow" \
  '[r["size_bytes"] for r in d["results"]][:3] == [192, 768, 3072]' "$scratch/compare/sweep.json"

# Two GPUs, played by programs that print what they are told to.
mkdir -p "$scratch/fake"
cat >"$scratch/fake/seq_to_heads_perf" <<'END'
#!/bin/sh
echo "$*" >>"$0.calls"
while [ $# -gt 0 ]; do
  case $1 in --transport) via=$2 ;; -J) json=$2 ;; -b) tokens=$2 ;; --heads) heads=$2 ;; --head-dim) dim=$2 ;; esac
  shift
done
wrong=0
case $via in
  nccl) us=20 ;;
  direct) us=10 wrong=${FAKE_WRONG:-0} ;;
  auto) us=11.5 via=direct ;;
  *) echo 'error: no engine' >&2 && exit 3 ;;
esac
echo '{"program": "x", "time": "y", "results": [{"tokens": '$tokens', "heads": '$heads', "head_dim": '$dim', '\
  '"size_bytes": 4096, "time_us": '$us', "time_min_us": 1, "wrong_bytes": '$wrong', "limit_us": 8, "via": "'$via'", '\
  '"reason": "fast", "predicted_us": 12, "nccl_us": 9, "nccl3_us": null, "nccl_all_to_all_us": 9.5}], "failed": false}' >"$json"
[ "$wrong" -eq 0 ]
END
cat >"$scratch/fake/python3" <<'END'
#!/bin/sh
[ "$1" = -c ] && exit 0
while [ "$1" != --json ]; do shift; done
row() { printf '{\n"way": "%s",\n"tokens": 512,\n"heads": 8,\n"dim": 64,\n"eager_us": %s,\n"graph_us": %s,\n"right": true\n},' "$@"; }
{ row seq_to_heads 31 30 && row seq_to_heads_contiguous 41 40 && row seq_to_heads_tuned 26 25 && row heads_to_seq 33 32; } >"$2"
END
chmod +x "$scratch/fake/seq_to_heads_perf" "$scratch/fake/python3"
cp "$scratch/fake/seq_to_heads_perf" "$scratch/fake/heads_to_seq_perf"
compare --gpus 2 -o "$scratch/compare" "$scratch/fake"
check "compare on two GPUs: exit status 0" exits 0
check "compare on two GPUs: graphs and eager of five shapes and two operations" rows_are 20
check "compare on two GPUs: every column of seq_to_heads" out_has "^  graph  *seq_to_heads  *512  *8  *64  *8.00  *9.00  *9.50  *\
20.00  *10.00  *N/A  *11.50  *direct  *1.438  *30.00  *40.00  *25.00\$"
check "compare on two GPUs: eager rows have PyTorch's eager times" out_has ' eager .* 31.00  *41.00  *26.00$'
check "compare on two GPUs: nothing tuned of heads_to_seq" out_has ' graph  *heads_to_seq .* 32.00  *N/A  *N/A$'
check "compare on two GPUs: no peers where PyTorch said nothing" out_has ' 75601  *41  *128 .* direct .* N/A  *N/A  *N/A$'
check "compare on two GPUs: says why copy_engine is N/A" out_has '^# N/A: copy_engine: no engine$'
check "compare on two GPUs: the baseline beside auto" \
  grep -q -e '-g 2 --transport auto --heads 40 .*-G 20 --baseline 1' "$scratch/fake/heads_to_seq_perf.calls"
compare --gpus 2 --sweep -o "$scratch/compare" "$scratch/fake"
check "a sweep on two GPUs: exit status 0" exits 0
check "a sweep on two GPUs: how far auto is from the best" \
  out_has '^  graph .* 4096  *20.00  *10.00  *N/A  *11.50  *direct  *12.00  *10.00  *direct  *+15.0$'
check "a sweep on two GPUs: the worst" \
  out_has '^# Worst of auto: +15.0 % off: .* 11.50 us by direct, best 10.00 us by direct$'
check "a sweep on two GPUs: one run for all sizes" \
  grep -q -e '--heads 40 --head-dim 128 -G 20 -b 1024 -e 65536 -f 4' "$scratch/fake/seq_to_heads_perf.calls"
export FAKE_WRONG=3
compare --gpus 2 --mode graph -o "$scratch/compare" "$scratch/fake"
check "compare with wrong data: exit status 1" exits 1
check "compare with wrong data: --mode graph is 10 rows" rows_are 10
check "compare with wrong data: the table says so" out_has ' 20.00  *WRONG  *N/A  *11.50 '
check_json "compare with wrong data: so does the JSON" \
  'all(r["wrong"] == ["ulyx_direct_us"] and r["ulyx_direct_us"] is None for r in d["results"])' \
  "$scratch/compare/compare.json"
unset FAKE_WRONG
printf '#!/bin/sh\nexit 3\n' >"$scratch/fake/heads_to_seq_perf"
compare --gpus 2 --mode eager -o "$scratch/compare" "$scratch/fake"
check "compare without a result of auto: exit status 1" exits 1
check "compare without a result of auto: its rows are there" rows_are 10
for wrong in "--foo" "--gpus two" "--mode both" "-o" "$scratch"; do
  compare $wrong
  check "compare.sh $wrong: exit status 2" exits 2
  check "compare.sh $wrong: one line" err_is_one_line
  check "compare.sh $wrong: nothing on standard output" out_is_empty
done
compare -h
check "compare.sh -h: exit status 0" exits 0
check "compare.sh -h names --sweep" out_has '^  --sweep'

# --- ulyx_plan ------------------------------------------------------------------------------------------------

run ulyx_plan exchange --tokens 9 --heads 7 --head-dim 4 --ranks 4 --json
cp "$out" "$json"
check "plan of 7 heads over 4 ranks: exit status 0" exits 0
check "plan: no error" err_is_progress
check "plan of 7 heads over 4 ranks: 2 2 2 1" out_has '"head_ranges": \[\[0, 2\], \[2, 4\], \[4, 6\], \[6, 7\]\]'
check "plan of 9 tokens over 4 ranks: 3 2 2 2" out_has '"token_ranges": \[\[0, 3\], \[3, 5\], \[5, 7\], \[7, 9\]\]'
check_json "plan: one row and column a rank" 'len(d["seq_to_heads_bytes"]) == 4 and len(d["arena_bytes"]) == 4' "$json"
check_json "plan: all of q, k and v moves once" 'sum(map(sum, d["seq_to_heads_bytes"])) == 3 * 9 * 7 * 4 * 2' "$json"
check_json "plan: all of o moves once" 'sum(map(sum, d["heads_to_seq_bytes"])) == 9 * 7 * 4 * 2' "$json"
check_json "plan: rank 0 to rank 3 is 3 tokens x 3 tensors x 1 head x 8 bytes" 'd["seq_to_heads_bytes"][0][3] == 72' \
  "$json"
check_json "plan: rank 3 to rank 0 is 3 tokens x 1 head x 8 bytes" 'd["heads_to_seq_bytes"][3][0] == 24' "$json"

run ulyx_plan exchange --tokens 64 --heads 20 --head-dim 8 --ranks 8 --json
cp "$out" "$json"
check_json "plan of 20 heads over 8 ranks: 3 3 3 3 2 2 2 2" \
  '[b - a for a, b in d["head_ranges"]] == [3, 3, 3, 3, 2, 2, 2, 2]' "$json"

run ulyx_plan exchange --tokens 8 --heads 8 --kv-heads 2 --head-dim 4 --value-dim 2 --batch 3 --type float32 --ranks 4 \
  --json
cp "$out" "$json"
check_json "plan of 8 query heads over 2 key/value heads: owners 0 0 1 1" \
  'd["kv_head_ranges"] == [[0, 1], [0, 1], [1, 2], [1, 2]]' "$json"
check_json "plan: bytes of grouped heads" \
  'd["seq_to_heads_bytes"][1][2] == 3 * 2 * 4 * (2 * 4 + 1 * 4 + 1 * 2)' "$json"
check_json "plan: bytes of o have the value's dim" 'd["heads_to_seq_bytes"][1][2] == 3 * 2 * 4 * 2 * 2' "$json"

run ulyx_plan exchange --head-dim 4 --ranks 3 --token-counts 4,0,5 --head-counts 0,3,1 --json
cp "$out" "$json"
check_json "plan from counts: ranges" \
  'd["token_ranges"] == [[0, 4], [4, 4], [4, 9]] and d["head_ranges"] == [[0, 0], [0, 3], [3, 4]]' "$json"
check_json "plan from counts: who owns no tokens sends nothing" 'sum(d["seq_to_heads_bytes"][1]) == 0' "$json"

run ulyx_plan exchange --tokens 9 --heads 7 --head-dim 4 --ranks 4
check "plan as text: exit status 0" exits 0
check "plan as text: ranges" out_has '\[6, 7)'
check "plan as text: both matrices" out_has '^heads_to_seq: bytes'

grouped="--tokens 1024 --heads 28 --kv-heads 4 --head-dim 128 --ranks 8"
run ulyx_plan exchange $grouped
check "plan of 28 query heads over 4 key/value heads: the second rank's heads share two of them" \
  out_has '^ *1 .* \[4, 8)  *\[0, 2)  *[0-9]*  \[0, 3)->0  \[3, 4)->1$'
check "plan: the ranks that a key/value head goes to" out_has '^ *2  *\[14, 21)  3,4,5$'
run ulyx_plan exchange $grouped --json
cp "$out" "$json"
check_json "plan: local query heads to local key/value heads" \
  '[len(m) for m in d["kv_head_of_head"]] == [4, 4, 4, 4, 3, 3, 3, 3] and d["kv_head_of_head"][3] == [0, 0, 1, 1]' "$json"
check_json "plan: no key/value head crosses to a rank twice" \
  '(d["kv_head_ranks"] == [[0, 1], [1, 2, 3], [3, 4, 5], [5, 6, 7]]
    and d["seq_to_heads_bytes"][0][3] == 128 * (4 + 2 * 2) * 128 * 2)' "$json"
run ulyx_plan exchange --head-dim 4 --ranks 3 --token-counts 4,0,5 --head-counts 0,3,1 --replicated 2 --replicated-last
check "plan: rows of replicated tokens" out_has '^ *2  .* \[5, 7)  *\[9, 11)$'
run ulyx_plan exchange --tokens 9 --heads 7 --head-dim 4 --ranks 4 --replicated 2 --json
cp "$out" "$json"
check_json "plan: replicated tokens stand first" \
  'd["replicated_tokens"] == 2 and d["seq_replicated"] == [[0, 2]] * 4 and d["heads_replicated"] == [0, 2]' "$json"

run ulyx_plan times --model all
check "times of every model: exit status 0" exits 0
check "times: no error" err_is_progress
check "times: a row for 16 ranks" out_has '^wan2.1-14b-720p *16  heads_to_seq'
run ulyx_plan times --tokens 75600 --heads 40 --head-dim 128 --ranks 2 --json
cp "$out" "$json"
check_json "times: the remote bytes of two ranks are half of each rank's" \
  'd[0]["remote_bytes"] == 3 * 37800 * 20 * 128 * 2 and d[1]["remote_bytes"] == 37800 * 20 * 128 * 2' "$json"
# As measured on two H200s (docs/performance.md), within a tenth.
check_json "times of seq_to_heads at 75600: as measured" \
  'abs(d[0]["direct_us"] / 1610 - 1) < 0.1 and abs(d[0]["copy_engine_us"] / 1502 - 1) < 0.1' "$json"
check_json "times of heads_to_seq at 75600: as measured" \
  'abs(d[1]["direct_us"] / 544.9 - 1) < 0.1 and abs(d[1]["copy_engine_us"] / 510.7 - 1) < 0.1' "$json"
for shape_of in '512 8 64 7.8 6.9' '4096 24 128 61.6 29.1' '32760 12 128 218.7 87.0'; do
  # shellcheck disable=SC2086 # five words
  set -- $shape_of
  run ulyx_plan times --tokens "$1" --heads "$2" --head-dim "$3" --ranks 2 --json
  cp "$out" "$json"
  check_json "times of $1 tokens: as measured" \
    "abs(d[0]['direct_us'] / $4 - 1) < 0.1 and abs(d[1]['direct_us'] / $5 - 1) < 0.1" "$json"
done
# And on four, to which nothing was fitted.
for shape_of in '4096 24 128 47.9' '32760 12 128 168.2' '75600 40 128 1220' '75601 41 128 1352'; do
  # shellcheck disable=SC2086 # four words
  set -- $shape_of
  run ulyx_plan times --tokens "$1" --heads "$2" --head-dim "$3" --ranks 4 --json
  cp "$out" "$json"
  check_json "times of $1 tokens on four ranks: as measured" "abs(d[0]['direct_us'] / $4 - 1) < 0.1" "$json"
done
run ulyx_plan times --model flux1-dev-1024 --ranks 2 --json
cp "$out" "$json"
check_json "times: a model's replicated tokens cross on the way back alone" \
  'd[0]["remote_bytes"] == 3 * 2048 * 12 * 128 * 2 and d[1]["remote_bytes"] == (2048 + 512) * 12 * 128 * 2' "$json"
run ulyx_plan times --model wan2.1-1.3b-480p
check "times of 12 heads: exit status 0" exits 0
check "times of 12 heads: 16 ranks are left out, and said so" out_has '^# left out: 1 of fewer heads'
refuses 'are needed' ulyx_plan times --tokens 9
refuses "unknown model 'wan9'" ulyx_plan times --model wan9
refuses 'of its own' ulyx_plan times --model all --tokens 9
refuses 'fewer heads or tokens than ranks' ulyx_plan times --tokens 9 --heads 3 --head-dim 8 --ranks 4
refuses 'must be 1 to 1024, not 0' ulyx_plan times --model all --ranks 0
run ulyx_plan -h
check "ulyx_plan -h: exit status 0" exits 0
check "ulyx_plan -h names exchange" out_has exchange
run ulyx_plan exchange -h
check "ulyx_plan exchange -h: exit status 0" exits 0
for flag in --tokens --heads --kv-heads --head-dim --value-dim --batch --type --ranks --token-counts --head-counts \
  --replicated --replicated-last --json; do
  check "ulyx_plan exchange -h names $flag" out_has "^  $flag"
done

shape="--tokens 9 --heads 7 --head-dim 4 --ranks 4"
refuses 'a subcommand is missing' ulyx_plan
refuses "unknown subcommand 'swap'" ulyx_plan swap
refuses "unknown flag '--foo'" ulyx_plan exchange --foo
refuses "unknown type 'bf17'" ulyx_plan exchange $shape --type bf17
refuses "takes a number, not '9.5'" ulyx_plan exchange $shape --tokens 9.5
refuses "takes a number, not '99999999999999999999'" ulyx_plan exchange $shape --tokens 99999999999999999999
refuses "tokens must be at least 1, not 0" ulyx_plan exchange $shape --tokens 0
refuses "ranks must be 1 to" ulyx_plan exchange $shape --ranks 0
refuses "cannot split 3 tokens" ulyx_plan exchange $shape --tokens 3
refuses "cannot split 3 heads" ulyx_plan exchange $shape --heads 3
refuses "kvHeads" ulyx_plan exchange $shape --kv-heads 3
refuses "needs --replicated" ulyx_plan exchange $shape --replicated-last
refuses "one count a rank, 4, not 3" ulyx_plan exchange $shape --token-counts 3,3,3
refuses "one count a rank, 4, not 5" ulyx_plan exchange $shape --head-counts 1,2,2,1,1
refuses "tokens is 9, but --token-counts add up to 8" ulyx_plan exchange $shape --token-counts 2,2,2,2
refuses "at least 0, not -1" ulyx_plan exchange $shape --token-counts 5,5,-1,0
refuses "2^63" ulyx_plan exchange $shape --tokens 9223372036854775807
refuses "ranks is needed" ulyx_plan exchange --tokens 9 --heads 7 --head-dim 4
refuses "heads is needed" ulyx_plan exchange --tokens 9 --head-dim 4 --ranks 2
refuses "head-dim is needed" ulyx_plan exchange --tokens 9 --heads 7 --ranks 2
refuses "tokens is needed" ulyx_plan exchange --heads 7 --head-dim 4 --ranks 2

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
