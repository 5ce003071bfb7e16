#!/bin/sh
# What scripts and hands that know nccl-tests rely on, on the CPU: its flags, the look of its table, its footer, its exit
# statuses and its JSON.
#
#   tests/perf_habits_test.sh DIRECTORY    where the programs are
#
# Ends with one line, '<n> passed, <m> failed', and exits non-zero where one failed.
# shellcheck disable=SC2016,SC2086 # awk's programs are in single quotes; unquoted variables below hold one word a flag
set -u

here=$(dirname "$0")
# shellcheck source=tests/perf_checks.sh
. "$here/perf_checks.sh"

programs="seq_to_heads_perf heads_to_seq_perf all_gather_rows_perf reduce_scatter_rows_perf all_to_all_rows_perf
  conv_halo_perf state_chain_perf"
quick="-n 2 -w 1"

# --- Flags ----------------------------------------------------------------------------------------------------

# Every flag of nccl-tests 2.19.6, each with a value that is taken on the CPU. -t and -g are for GPUs
# (tests/perf_threads_test.sh), -J is below.
taken='b:mintokens:64 e:maxtokens:64 i:steptokens:64 f:stepfactor:2 n:iters:2 m:agg_iters:2 w:warmup_iters:1
  N:run_cycles:1 p:parallel_init:1 c:check:1 o:op:sum d:datatype:float r:root:0 z:blocking:0 y:stream_null:0 T:timeout:9
  G:cudagraph:0 C:report_cputime:0 S:report_timestamps:1 a:average:1 R:local_register:2 x:cta_policy:0
  D:device_implementation:0 V:device_cta_count:16 M::1 u:unalign:1 I:per_iter_timing:1 K:per_iter_skip:1'
refused='o:op:prod:adds.up o:op:all:adds.up d:datatype:all:one.type r:root:1:has.a.root r:root:all:has.a.root
  z:blocking:1:between.iterations z:blocking:3:between.iterations y:stream_null:1:stream.of.its.own
  D:device_implementation:1:--transport.direct x:cta_policy:2:NCCL_CTA_POLICY p:parallel_init:2:0|1 I:per_iter_timing:2:0|1
  K:per_iter_skip:2:must.leave V:device_cta_count:-1:must.be.0 u:unalign:-1:must.be.0 M::2:must.be.0 a:average:4:must.be.0
  R:local_register:3:must.be.0 N:run_cycles:-1:must.be.0'
flag_program=seq_to_heads_perf
all_short='' all_joined='' all_long=''
for one in $taken; do
  short=${one%%:*} value=${one##*:} long=${one#*:}
  long=${long%:*}
  case $short in b | e | i | f) before='' ;; *) before='-b 64' ;; esac
  [ $short = e ] && before='-b 64'
  run $flag_program --ranks 2 $before $quick -$short $value
  check "-$short $value is taken" exits 0
  run $flag_program --ranks 2 $before $quick -$short$value
  check "-$short$value is taken" exits 0
  [ $short = i ] && continue # beside -f
  all_short="$all_short -$short $value"
  all_joined="$all_joined -$short$value"
  [ -z "$long" ] || all_long="$all_long --$long=$value"
done
for program in $programs; do
  passes "$program takes all flags of nccl-tests at once" $program --ranks 2 $all_short
  passes "$program takes them joined to their values" $program --ranks 2 $all_joined
  passes "$program takes their long names" $program --ranks 2 $all_long
  refuses "adds up" $program --ranks 2 -o prod
  refuses "one type\|float32" $program --ranks 2 -d all
  run $program -h
  for one in $taken g:ngpus: t:nthreads: J:output_file: b:minbytes: e:maxbytes: i:stepbytes:; do
    long=${one#*:}
    long=${long%%:*}
    check "$program -h names -${one%%:*}" out_has "^  .*-${one%%:*}"
    [ -z "$long" ] || check "$program -h names --$long" out_has "^  .*--$long"
  done
done
for one in $refused; do
  short=${one%%:*} why=${one##*:} value=${one#*:*:}
  value=${value%:*} long=${one#*:}
  long=${long%%:*}
  refuses "$why" $flag_program --ranks 2 $quick -$short $value
  [ -z "$long" ] || refuses "$why" $flag_program --ranks 2 $quick --$long $value
done
refuses "unknown flag '-q3'" seq_to_heads_perf -q3
refuses "n takes a number, not '4x'" seq_to_heads_perf --ranks 2 -n4x
refuses "takes plain|symmetric, not '1'" seq_to_heads_perf --ranks 2 --memory 1
refuses "t N -g G\|GPUs were asked for" seq_to_heads_perf -t 9 -g 7
refuses "f must be at least 1, not 0" seq_to_heads_perf --ranks 2 -b 8 -e 16 -f 0
refuses "f 1 needs -i" seq_to_heads_perf --ranks 2 -b 8 -e 16 -f 1
passes "-f 1 leaves the step to -i" seq_to_heads_perf --ranks 2 -b 8 -e 16 -f 1 -i 4 --heads 2 --head-dim 8 $quick
check "-f 1 leaves the step to -i: 8, 12, 16" rows_are 3
passes "-T 0 waits for ever" seq_to_heads_perf --ranks 2 -b 8 -T 0 --heads 2 --head-dim 8 $quick
refuses "G needs GPUs" seq_to_heads_perf --ranks 2 -b 1G -G 2

command_line="seq_to_heads_perf -N 0, until it is interrupted"
timeout 3 "$bin/seq_to_heads_perf" --ranks 2 -b 16 -N 0 --heads 2 --head-dim 8 $quick >"$out" 2>"$err"
status=$?
check "-N 0 never ends" exits 124
check "-N 0 prints row after row" [ "$(grep -c -v '^#' "$out")" -gt 9 ]
refuses "never ends" seq_to_heads_perf --ranks 2 -N 0 -J "$json"

passes "-K 2 of 3 iterations" seq_to_heads_perf --ranks 2 -b 16 -n 3 -w 0 -K 2 -J "$json"
check "-K 2: the header says so" out_has '^# the first 2 samples do not count$'
check_json "-K 2 of 3 iterations leaves one: all its statistics are the same" \
  'all(len({r["time_us"], r["time_min_us"], r["time_mean_us"], r["time_max_us"], r["time_p99_us"]}) == 1
    for r in d["results"])' "$json"

passes "-S 1" seq_to_heads_perf --ranks 2 -b 16 $quick -S 1
check "-S 1: each row has the time of day" out_has '  20[0-9][0-9]-[01][0-9]-[0-3][0-9] [0-2][0-9]:[0-5][0-9]:[0-6][0-9]$'
passes "-M 1" seq_to_heads_perf --ranks 2 -b 64 --heads 4 --head-dim 32 -M 1 $quick -J "$json"
check "-M 1: the footer has the memory of a rank" \
  out_has '^# Memory of a rank     : Tensors 51.0 KB | Arena 0 B | Total 51.0 KB$'
check_json "-M 1: two times 32 x 12 x 32 x 2 bytes and 6 x 2 canaries of 256 bytes" \
  'd["results"][0]["tensor_bytes"] == 2 * 32 * 12 * 32 * 2 + 12 * 256' "$json"

for program in $programs; do
  passes "$program off its alignment" $program --ranks 3 -b 40 -u 3 $quick
done
for type in int8 half float double; do
  passes "one $type off its alignment" seq_to_heads_perf --ranks 3 -b 40 --heads 5 --head-dim 7 -d $type -u 1 $quick
done

# --- Sweeps in bytes ------------------------------------------------------------------------------------------

sizes() { awk '!/^#/ { printf "%s%s", (n++ ? " " : ""), $1 }' "$out"; }
sizes_are() { [ "$(sizes)" = "$1" ]; }
small="--heads 4 --head-dim 32"
passes "a sweep in bytes" seq_to_heads_perf --ranks 2 --minbytes 12K --maxbytes 50K $small $quick
check "a sweep in bytes: sizes double from 12 KB" sizes_are "12288 24576 49152"
passes "a sweep in bytes by increment" seq_to_heads_perf --ranks 2 --minbytes 12K --maxbytes 25K --stepbytes 6K $small $quick
check "a sweep in bytes by increment" sizes_are "12288 18432 24576"
passes "bytes between two sizes" heads_to_seq_perf --ranks 3 --minbytes 5000 --heads 6 --head-dim 10 $quick
check "bytes between two sizes: the most tokens that they hold, as many on each rank" sizes_are 4920
passes "bytes for less than a token a rank" all_gather_rows_perf --ranks 4 --minbytes 1 --row-elements 8 $quick
check "bytes for less than a token a rank: one a rank" sizes_are 64
passes "bytes beside replicated tokens" seq_to_heads_perf --ranks 2 --minbytes 4K --replicated 3 $small $quick
check "bytes beside replicated tokens: (2 + 3) x 12 x 64 bytes" sizes_are 3840
refuses "does not grow with its rows" conv_halo_perf --ranks 2 --minbytes 1M
refuses "does not grow with its tokens" state_chain_perf --ranks 2 --minbytes 1M
refuses "in tokens (-b, -e, -i) or in bytes" seq_to_heads_perf --ranks 2 -b 8 --minbytes 1K
refuses "no model" seq_to_heads_perf --ranks 2 --model all --minbytes 1K
printf '16 16\n16 16\n' >"$scratch/matrix"
refuses "no matrix" all_to_all_rows_perf --ranks 2 --matrix "$scratch/matrix" --minbytes 1K
refuses "need --minbytes" seq_to_heads_perf --ranks 2 --maxbytes 1K
refuses "must not be below --minbytes" seq_to_heads_perf --ranks 2 --minbytes 2K --maxbytes 1K
refuses "exclude each other" seq_to_heads_perf --ranks 2 --minbytes 1K --maxbytes 2K --stepbytes 1K -f 2

# --- The table ------------------------------------------------------------------------------------------------

# out_has_line LINE: word for word.
out_has_line() { grep -q -x -F -e "$1" "$out"; }
# nccl-tests' columns out of place, at their widths.
row='^ *[0-9]\{1,12\}  *[0-9]\{1,12\}  *[a-z0-9]\{3,8\}  *\(none\|sum\)  *-1  *[0-9.]*  *[0-9.]*  *[0-9.]*  *[0-9N/A]*  '
for program in $programs; do
  passes "$program, its table" $program --ranks 2 -b 64 $quick
  check "$program: titles where nccl-tests has them" \
    out_has '^#       size         count      type   redop    root     time   algbw   busbw  #wrong  '
  check "$program: units below them" \
    out_has '^#        (B)    (elements)                               (us)  (GB/s)  (GB/s)     (B)  '
  check "$program: out-of-place over them" \
    out_has '^#                                                              out-of-place   '
  check "$program: statistics over iterations" out_has '^# .*  min  *avg  *max  *p99  '
  check "$program: a row" out_has "$row"
  check "$program: rows are as wide as the titles" \
    awk '/^# *size / { wide = length($0) } !/^#/ && length($0) != wide { bad = 1 } END { exit bad }' "$out"
  check "$program: says that it starts" out_has_line "# Collective test starting: $program"
  check "$program: says what it was asked for" \
    out_has '^# nThread 2 nGpus 0 min [a-z]* 64 max [a-z]* 64 step: 2(factor) warmup iters: 1 iters: 2 agg iters: 1 val'
  check "$program: names the devices" out_has '^# Using devices$'
  check "$program: a line a rank" out_has '^#  Rank  1 Group  0 Pid  *[0-9]* on  *[^ ]* CPU$'
  check "$program: the footer, line by line" [ "$(tail -n 5 "$out" | sed 's/: [0-9.e+-]*$/: N/')" = \
    "# Out of bounds values : 0 OK
# Avg bus bandwidth    : N
#
# Collective test concluded: $program
#" ]
  check "$program: nothing between rows and #" [ "$(grep -c '^$' "$out")" -eq 0 ]
done
passes "the names of types are nccl-tests'" seq_to_heads_perf --ranks 2 -b 16 -d float8e4m3 $quick
check "float8e4m3 is f8e4m3" last_row_is type f8e4m3
passes "a sum's name" reduce_scatter_rows_perf --ranks 2 -b 16 -d half --row-elements 8 $quick
check "a reduce-scatter sums" last_row_is redop sum
check "count: 16 rows of 8 elements" last_row_is count 128
run seq_to_heads_perf --ranks 2 -b 16 $quick -c 0
check "unchecked data is N/A, not right" last_row_is '#wrong' N/A
passes "statistics in order" seq_to_heads_perf --ranks 2 -b 64 -n 9 -w 0
check "min, avg, p99 and max are in order" \
  awk '!/^#/ && !($10 <= $6 && $6 <= $12 && $10 <= $11 && $11 <= $13 && $13 <= $12) { bad = 1 } END { exit bad }' "$out"

# --- Exit statuses --------------------------------------------------------------------------------------------

export NCCL_TESTS_MIN_BW=1000000
run seq_to_heads_perf --ranks 2 -b 16 $quick -J "$json"
check "below NCCL_TESTS_MIN_BW: exit status 1" exits 1
check "below NCCL_TESTS_MIN_BW: the footer says FAILED" out_has '^# Avg bus bandwidth    : [0-9.e-]* FAILED$'
check "below NCCL_TESTS_MIN_BW: the data is right" out_has_line '# Out of bounds values : 0 OK'
check_json "below NCCL_TESTS_MIN_BW: so says the JSON" 'd["average_bus_bandwidth"]["okay"] == "false"' "$json"
export NCCL_TESTS_MIN_BW=1e-9
run seq_to_heads_perf --ranks 2 -b 16 $quick -J "$json"
check "above NCCL_TESTS_MIN_BW: exit status 0" exits 0
check "above NCCL_TESTS_MIN_BW: the footer says OK" out_has '^# Avg bus bandwidth    : [0-9.e-]* OK$'
check_json "above NCCL_TESTS_MIN_BW: so says the JSON" 'd["average_bus_bandwidth"]["okay"] == "true"' "$json"
export NCCL_TESTS_MIN_BW=fast
refuses "NCCL_TESTS_MIN_BW takes a number, not 'fast'" seq_to_heads_perf --ranks 2 -b 16 $quick
unset NCCL_TESTS_MIN_BW

# A launcher whose variables do not fit: RANK WORLD_SIZE, which of them is named.
launched() {
  export RANK="$1" WORLD_SIZE="$2"
  refuses "RANK=$1 and WORLD_SIZE=$2 are no rank" seq_to_heads_perf -b 16 $quick
}
launched 5 2
launched 2 2
launched -1 2
launched one 2
launched 0 two
launched 0 0
launched 0 9999999999
launched 1 1
passes "a launcher that does not fit, and --ranks" seq_to_heads_perf --ranks 2 -b 16 $quick
export RANK=0 WORLD_SIZE=2 LOCAL_RANK=first
refuses "LOCAL_RANK=first is no rank on this machine" seq_to_heads_perf -b 16 $quick
unset LOCAL_RANK
export WORLD_SIZE=''
refuses "RANK=0 is set, but WORLD_SIZE is not" seq_to_heads_perf -b 16 $quick
export WORLD_SIZE=2
if ! nvidia-smi >/dev/null 2>&1; then
  for program in $programs; do
    refuses "torchrun started 2 processes, which need a GPU each, but rank 0 (local rank 0) sees none" $program -b 16 $quick
  done
  export RANK=0 WORLD_SIZE=1
  passes "a launcher of one process" seq_to_heads_perf -b 16 $quick
  export RANK='' WORLD_SIZE=''
  passes "an empty variable is not set" seq_to_heads_perf -b 16 $quick
fi
unset RANK WORLD_SIZE
export SLURM_PROCID=7 SLURM_STEP_NUM_TASKS=4
refuses "SLURM_PROCID=7 and SLURM_STEP_NUM_TASKS=4 are no rank" seq_to_heads_perf -b 16 $quick
unset SLURM_PROCID SLURM_STEP_NUM_TASKS

fault_library=$bin/libperf_fault.so
if [ -e "$fault_library" ] && ! ldd "$fault_library" | grep -q -e libasan -e libtsan -e libubsan; then
  for fault in byte canary stale; do
    command_line="ULYX_FAULT=$fault seq_to_heads_perf -u 3"
    ULYX_FAULT=$fault LD_PRELOAD=$fault_library "$bin/seq_to_heads_perf" --ranks 2 -b 32 -u 3 -n 1 -w 0 -J "$json" \
      >"$out" 2>"$err"
    status=$?
    check "a $fault fault off the alignment: exit status 1" exits 1
    check "a $fault fault off the alignment: the footer says FAILED" out_has '^# Out of bounds values : [1-9][0-9]* FAILED$'
    check_json "a $fault fault off the alignment: nccl-tests' members say so" \
      'd["out_of_bounds"]["okay"] == "false" and d["results"][0]["out_of_place"]["nwrong"] > 0' "$json"
  done
else
  echo "SKIPPED: faults under the programs (no libperf_fault.so, or one with a sanitizer, which cannot be preloaded)"
fi

# --- JSON -----------------------------------------------------------------------------------------------------

export ULYX_TEST_SECRET=do-not-write-this
passes "results as JSON" all_to_all_rows_perf --ranks 2 -b 16 -e 32 --output_file "$json" $quick
unset ULYX_TEST_SECRET
check "the environment is not in it" [ "$(grep -c -e do-not-write-this -e ULYX_TEST_SECRET "$json")" -eq 0 ]
check_json "no list of it either" '"env" not in d' "$json"
check_json "nccl-tests' members of a row" \
  '[(r["size"], r["count"], r["type"], r["redop"], r["root"], r["in_place"]) for r in d["results"]] == [
    (8 * 2560, 8 * 1280, "bfloat16", "none", "-1", None), (16 * 2560, 16 * 1280, "bfloat16", "none", "-1", None)]' "$json"
check_json "they say what ulyx's own say" \
  'all(r["out_of_place"] == {"time": r["time_us"], "alg_bw": r["algbw_gbps"], "bus_bw": r["busbw_gbps"],
    "nwrong": r["wrong_bytes"]} for r in d["results"])' "$json"
check_json "nccl-tests' members of a run" \
  '(d["version"] == 3 and d["args"][1:3] == ["--ranks", "2"] and d["config"]["iterations"] == 2
    and d["out_of_bounds"] == {"count": 0, "okay": "true"}
    and d["average_bus_bandwidth"] == {"bandwidth": d["average_bus_bandwidth_gbps"], "okay": "unchecked"}
    and len(d["start_time"]) == len(d["end_time"]) == 19)' "$json"
check_json "busbw is remote bytes over time" \
  'all(abs(r["busbw_gbps"] * r["time_us"] * 1000 / r["remote_bytes"] - 1) < 1e-4 for r in d["results"])' "$json"

# What lies at -J's path is replaced at the end, by a whole file.
kept=$scratch/kept
mkdir "$kept"
kept_is_alone() { [ "$(ls "$kept")" = results.json ]; }
passes "JSON to a new file" seq_to_heads_perf --ranks 2 -b 16 $quick -J "$kept/results.json"
check "JSON to a new file: nothing beside it" kept_is_alone
chmod 600 "$kept/results.json"
passes "JSON to an older file" seq_to_heads_perf --ranks 2 -b 24 $quick -J "$kept/results.json"
check "JSON to an older file: nothing beside it" kept_is_alone
check "JSON to an older file: open to no one else still" [ "$(find "$kept/results.json" -perm 600 | wc -l)" -eq 1 ]
check_json "JSON to an older file: the new results" 'd["results"][0]["tokens"] == 24' "$kept/results.json"
cp "$kept/results.json" "$scratch/older.json"
command_line="seq_to_heads_perf -J, killed"
"$bin/seq_to_heads_perf" --ranks 2 -b 16 -N 1000000 $quick -J "$kept/results.json" >"$out" 2>"$err" &
killed=$!
tenths=0
while [ ! -s "$out" ] && [ $tenths -lt 300 ]; do
  sleep 0.1
  tenths=$((tenths + 1))
done
kill -KILL $killed
wait $killed 2>/dev/null
status=$?
check "killed: it was at work" [ -s "$out" ]
check "killed: the older result is as it was" cmp -s "$kept/results.json" "$scratch/older.json"
ln -s results.json "$kept/link.json"
passes "JSON through a link" seq_to_heads_perf --ranks 2 -b 32 $quick -J "$kept/link.json"
check "JSON through a link: still a link" [ -L "$kept/link.json" ]
check_json "JSON through a link: the new results" 'd["results"][0]["tokens"] == 32' "$kept/results.json"
run seq_to_heads_perf --ranks 2 -b 16 $quick -J /dev/stdout
check "JSON to /dev/stdout: exit status 0" exits 0
check "JSON to /dev/stdout: it is there" out_has '"program": "seq_to_heads_perf"'
passes "JSON to /dev/null" seq_to_heads_perf --ranks 2 -b 16 $quick -J /dev/null
check "JSON to /dev/null: still a device" [ -c /dev/null ]
if [ -c /dev/full ]; then
  run seq_to_heads_perf --ranks 2 -b 16 $quick -J /dev/full
  check "JSON to /dev/full: exit status 3" exits 3
  check "JSON to /dev/full: says why" err_has "cannot write /dev/full: "
fi
for path in "$kept" "$kept/nowhere/results.json" "$kept/results.json/below" ""; do
  run seq_to_heads_perf --ranks 2 -b 16 $quick -J "$path"
  check "JSON to '$path': exit status 3" exits 3
  check "JSON to '$path': refused before the run" out_is_empty
  check "JSON to '$path': one line" err_is_one_line
done
if [ "$(id -u)" -ne 0 ]; then
  chmod 400 "$kept/results.json"
  run seq_to_heads_perf --ranks 2 -b 16 $quick -J "$kept/results.json"
  check "JSON to a file that takes none: exit status 3" exits 3
  check "JSON to a file that takes none: refused before the run" out_is_empty
  chmod 600 "$kept/results.json"
  chmod 500 "$kept"
  passes "JSON to an older file in a directory that takes no new one" seq_to_heads_perf --ranks 2 -b 40 $quick \
    -J "$kept/results.json"
  chmod 700 "$kept"
  check_json "JSON in a directory that takes no new file" 'd["results"][0]["tokens"] == 40' "$kept/results.json"
fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
