#!/bin/sh
# Runs the perf programs of the row collectives, the halo and the chain of states, and `ulyx_plan context`, on the
# CPU: output, exit statuses, JSON, flags, refusals, and faults put under them on purpose.
#
#   tests/perf_rows_test.sh DIRECTORY    where the programs are
#
# Ends with one line, '<n> passed, <m> failed', and exits non-zero where one failed.
# shellcheck disable=SC2086 # unquoted variables below hold one word a flag
set -u

here=$(dirname "$0")
# shellcheck source=tests/perf_checks.sh
. "$here/perf_checks.sh"

quick="-n 2 -w 1 -c 2" # with -c 2 sums of integers and of random numbers are both checked before timing
rows_programs="all_gather_rows_perf reduce_scatter_rows_perf all_to_all_rows_perf conv_halo_perf"
programs="$rows_programs state_chain_perf"

# --- All programs ---------------------------------------------------------------------------------------------

for program in $programs; do
  small="--row-elements 24"
  [ $program = state_chain_perf ] && small="--heads 2 --key-dim 6 --value-dim 5"

  passes "$program at 2 ranks" $program --ranks 2 -b 64 $small $quick -J "$json"
  check "$program: header names itself and the version" out_has "^# $program, ulyx [0-9]"
  check "$program: header says what the time is" out_has '^# time: .*maximum over ranks'
  check "$program: header names the transport" out_has '^# transport loopback'
  check "$program: no limit on the CPU" last_row_is limit% N/A
  check_json "$program: JSON has times" \
    'all(r["time_min_us"] <= r["time_us"] <= r["time_max_us"] for r in d["results"])' "$json"
  check_json "$program: JSON knows its data" 'd["out_of_bounds_values"] == 0 and d["failed"] is False' "$json"
  check_json "$program: JSON has null for what the CPU has not" \
    'all(r["limit_percent"] is None and r["nccl_us"] is None for r in d["results"])' "$json"

  passes "$program alone" $program --ranks 1 -b 64 $small $quick
  passes "$program at 7 ranks" $program --ranks 7 -b 67 $small $quick
  passes "$program, a sweep by factor" $program --ranks 3 -b 32 -e 256 -f 2 $small $quick
  check "$program: 4 rows by factor" rows_are 4
  check "$program: the last row has 256" last_row_is rows 256
  passes "$program, a sweep by increment" $program --ranks 2 -b 1K -e 2K -i 512 $small $quick
  check "$program: 3 rows by increment" rows_are 3
  passes "$program, run cycles" $program --ranks 2 -b 32 -N 3 $small $quick
  check "$program: 3 rows by cycles" rows_are 3
  passes "$program, plain memory" $program --ranks 2 -b 32 --memory plain $small $quick
  check "$program: header names plain memory" out_has 'memory plain'
  passes "$program, several exchanges a sample" $program --ranks 2 -b 32 -m 3 -a 1 $small $quick
  run $program --ranks 2 -b 32 $small -n 1 -w 0 -c 0
  check "$program without checks: exit status 0" exits 0
  check "$program without checks says so" out_has '^# Out of bounds values : not checked$'

  run $program -h
  check "$program -h: exit status 0" exits 0
  for flag in -b -e -f -i -n -w -c -G -J -N -a -t -m -R -g --minrows --ranks --baseline --enqueue --memory --id-file; do
    check "$program -h names $flag" out_has "^  .*$flag"
  done

  refuses "unknown flag '--sizes'" $program --sizes 3
  refuses "unknown argument 'rows'" $program rows
  refuses "unknown flag '--packed-in'" $program --ranks 2 --packed-in
  refuses "takes a number, not '4x'" $program --ranks 4x
  refuses "exclude each other" $program --ranks 2 -b 8 -e 16 -f 2 -i 2
  refuses "must not be below" $program --ranks 2 -b 16 -e 8
  refuses "needs GPUs" $program --ranks 2 -G 2
  refuses "needs GPUs" $program --ranks 2 --baseline 1

  run $program --ranks 2 -b 32 $small -J "$scratch/nowhere/results.json"
  check "$program: JSON to nowhere: exit status 3" exits 3
  check "$program: JSON to nowhere: one line" err_is_one_line
done

for program in $rows_programs; do
  for type in bfloat16 half float; do
    passes "$program, $type" $program --ranks 5 -b 61 --row-elements 37 --type $type $quick
  done
  refuses "unknown type 'bf17'" $program --ranks 2 --type bf17
  refuses "row-elements must be at least 1" $program --ranks 2 --row-elements 0
  refuses "pass 2^60 bytes" $program --ranks 2 --row-elements 9223372036854775807
  refuses "pass 2^60 bytes" $program --ranks 2 -b 9223372036854775807
done
for program in all_gather_rows_perf all_to_all_rows_perf conv_halo_perf; do
  for type in float8e4m3 int8 double bool int16; do
    passes "$program, $type" $program --ranks 3 -b 16 --row-elements 7 --type $type $quick
  done
done

# --- All-gather and reduce-scatter ----------------------------------------------------------------------------

for program in all_gather_rows_perf reduce_scatter_rows_perf; do
  passes "$program, ragged with empty ranks" $program --ranks 4 --counts 5,0,9,3 --row-elements 6 $quick
  check "$program: 17 rows" last_row_is rows 17
  check "$program: all rows are 17 x 6 x 2 bytes" last_row_is size 204
  passes "$program, nobody has rows" $program --ranks 3 --counts 0,0,0 --row-elements 6 $quick
  passes "$program, one rank has all" $program --ranks 3 --counts 0,8,0 --row-elements 6 $quick
  refuses "3 rows over 4 ranks" $program --ranks 4 -b 3
  refuses "one count a rank, 4, not 2" $program --ranks 4 --counts 1,2
  refuses "separated by commas" $program --ranks 2 --counts 1,,2
  refuses "exclude each other" $program --ranks 2 --counts 1,2 -b 3
  refuses "exceeds 64 bits" $program --ranks 2 --counts 9223372036854775807,1
done

passes "a target within one rank" all_gather_rows_perf --ranks 3 -b 30 --target 12,15 --row-elements 6 $quick -J "$json"
check "a target within one rank: 3 rows of 12 bytes" last_row_is size 36
check_json "a target within one rank: JSON has it" 'd["results"][0]["target"] == [12, 15]' "$json"
check_json "a target within one rank: its bytes leave for each of the others" \
  'd["results"][0]["remote_bytes"] == 2 * 36' "$json"
passes "a target over ranks" all_gather_rows_perf --ranks 3 --counts 7,0,9 --target 5,10 --row-elements 6 $quick
passes "an empty target" all_gather_rows_perf --ranks 3 -b 30 --target 12,12 --row-elements 6 $quick
check "an empty target: no bytes" last_row_is size 0
refuses "not within the 30 rows" all_gather_rows_perf --ranks 3 -b 30 --target 12,31
refuses "a start and a stop" all_gather_rows_perf --ranks 3 -b 30 --target 12,10
refuses "a start and a stop" all_gather_rows_perf --ranks 3 -b 30 --target 12
refuses "unknown flag '--target'" reduce_scatter_rows_perf --ranks 3 --target 1,2
refuses "not int8" reduce_scatter_rows_perf --ranks 2 --type int8

for ranks in 1 3 8 16; do
  for type in bfloat16 half float; do
    passes "sums of $type over $ranks ranks" reduce_scatter_rows_perf --ranks $ranks -b 40 --row-elements 129 \
      --type $type -n 1 -w 0 -c 6
  done
done

run all_gather_rows_perf --ranks 4 --counts 1,2,3,4 --row-elements 8 -n 1 -w 0 -J "$json"
check_json "an all-gather's busiest direction: rank 3 sends 4 rows to 3 ranks" \
  'd["results"][0]["remote_bytes"] == 3 * 4 * 16' "$json"
run reduce_scatter_rows_perf --ranks 4 --counts 1,2,3,4 --row-elements 8 -n 1 -w 0 -J "$json"
check_json "a reduce-scatter's busiest direction: rank 3 receives 4 rows from 3 ranks" \
  'd["results"][0]["remote_bytes"] == 3 * 4 * 16' "$json"

# --- All-to-all -----------------------------------------------------------------------------------------------

matrix=$scratch/matrix
printf '3 0 2\n\n0,0,0\n1\t4 5 \r\n' >"$matrix"
in_rows="--matrix $matrix --matrix-unit rows"
passes "a matrix with a rank that sends nothing" all_to_all_rows_perf --ranks 3 $in_rows --row-elements 6 $quick \
  -J "$json"
check "a matrix: 15 rows" last_row_is rows 15
check "a matrix: the busiest sends 10 rows of 12 bytes" last_row_is size 120
check_json "a matrix: rank 2 sends 5 rows to others" 'd["results"][0]["remote_bytes"] == 5 * 12' "$json"
passes "a matrix of more ranks than there are" all_to_all_rows_perf --ranks 2 $in_rows --row-elements 6 $quick
check "a matrix of more ranks: 3 rows" last_row_is rows 3
printf '0 0\n0 0' >"$matrix"
passes "a matrix of nothing" all_to_all_rows_perf --ranks 2 $in_rows $quick
refuses "fewer than the 3" all_to_all_rows_perf --ranks 3 $in_rows
refuses "exclude each other" all_to_all_rows_perf --ranks 2 $in_rows -b 3
printf '1 2\n3\n' >"$matrix"
refuses "line 2: 1 counts, the lines before it have 2" all_to_all_rows_perf --ranks 2 $in_rows
printf '1 2\n' >"$matrix"
refuses "not square" all_to_all_rows_perf --ranks 2 $in_rows
: >"$matrix"
refuses "not square" all_to_all_rows_perf --ranks 2 $in_rows
for entry in -1 1.5 x 99999999999999999999 1111111111111111111111111111111111; do
  printf '1 %s\n3 4\n' "$entry" >"$matrix"
  refuses "line 1: '.*' is no count of rows" all_to_all_rows_perf --ranks 2 $in_rows
done
refuses "cannot read" all_to_all_rows_perf --ranks 2 --matrix "$scratch/nowhere"
refuses "cannot read" all_to_all_rows_perf --ranks 2 --matrix "$scratch"

# As nccl-tests' alltoallv has it: bytes, of which it sends whole multiples of 16, as decimal numbers.
printf '  100  200  150\n  50   100  75\n  300  150  200\n' >"$matrix"
passes "a matrix of nccl-tests" all_to_all_rows_perf --ranks 3 --matrix "$matrix" $quick -J "$json"
check "a matrix of nccl-tests: the header names it" out_has "^# shape: rows of 8 elements, type bfloat16, matrix $matrix"
check "a matrix of nccl-tests: the busiest sends (18 + 9 + 12) x 16 bytes" last_row_is size 624
check_json "a matrix of nccl-tests: of them 27 x 16 to others" 'd["results"][0]["remote_bytes"] == 27 * 16' "$json"
passes "a matrix of nccl-tests, other elements" all_to_all_rows_perf --ranks 3 --matrix "$matrix" -d double $quick
check "a matrix of nccl-tests: its bytes are those of any type" last_row_is size 624
passes "a matrix of nccl-tests, twice" all_to_all_rows_perf --ranks 3 --matrix "$matrix" --matrix-scale 2.0 $quick
check "a matrix of nccl-tests, twice: (37 + 18 + 25) x 16 bytes" last_row_is size 1280
passes "a matrix of nccl-tests, a part" all_to_all_rows_perf --ranks 2 --matrix "$matrix" $quick
check "a matrix of nccl-tests, a part: (6 + 12) x 16 bytes" last_row_is size 288
passes "a matrix of nccl-tests in larger rows" all_to_all_rows_perf --ranks 3 --matrix "$matrix" --row-elements 50 $quick
check "a matrix of nccl-tests in larger rows: (3 + 1 + 2) x 100 bytes" last_row_is size 600
printf '1e3 1536.5 .5E+2\n0 0 0\n0 0 0' >"$matrix"
passes "a matrix of decimal numbers" all_to_all_rows_perf --ranks 3 --matrix "$matrix" $quick
check "a matrix of decimal numbers: (62 + 96 + 3) x 16 bytes" last_row_is size 2576
for entry in -1 inf nan 0x10 1e 1e999 '#'; do
  printf '\n16 32\n\n48 %s\n' "$entry" >"$matrix"
  refuses "line 4: '$entry' is no count of bytes" all_to_all_rows_perf --ranks 2 --matrix "$matrix"
done
printf '16 1e300\n16 16\n' >"$matrix"
refuses "line 1: 1e300 is too much" all_to_all_rows_perf --ranks 2 --matrix "$matrix"
# A NUL ends no number early, whatever digits come after it.
printf '16 16\n16 10\00000\n' >"$matrix"
refuses "line 2: a NUL byte" all_to_all_rows_perf --ranks 2 --matrix "$matrix"
printf '16 16\n16 16\0' >"$matrix"
refuses "line 2: a NUL byte" all_to_all_rows_perf --ranks 2 $in_rows
printf '16 16\n16 16\n' >"$matrix"
for flag in "--matrix-scale 2" "--matrix-scale 0" "--matrix-unit rows" "--matrix-unit bytes"; do
  refuses "of --matrix, which is not given" all_to_all_rows_perf --ranks 2 -b 16 $flag
done
refuses "matrix-scale takes a number, not '-2'" all_to_all_rows_perf --ranks 2 --matrix "$matrix" --matrix-scale -2
refuses "takes bytes|rows, not 'tokens'" all_to_all_rows_perf --ranks 2 --matrix "$matrix" --matrix-unit tokens
passes "fewer rows than ranks" all_to_all_rows_perf --ranks 5 -b 3 --row-elements 6 $quick

# --- Halo -----------------------------------------------------------------------------------------------------

passes "a halo from several ranks" conv_halo_perf --ranks 5 -b 10 --conv-kernel 6 --row-elements 6 $quick -J "$json"
check "a halo from several ranks: 5 rows of 12 bytes" last_row_is size 60
check_json "a halo from several ranks: JSON has the kernel" 'd["results"][0]["conv_kernel"] == 6' "$json"
passes "a halo longer than the sequence" conv_halo_perf --ranks 3 -b 9 --conv-kernel 100 --row-elements 6 $quick
check "a halo longer than the sequence: 6 rows" last_row_is size 72
passes "a kernel of 1" conv_halo_perf --ranks 3 -b 9 --conv-kernel 1 --row-elements 6 $quick
check "a kernel of 1 needs nothing" last_row_is size 0
passes "sequences that begin anywhere" conv_halo_perf --ranks 4 --cu-seqlens 0,3,3,4,17,20 --row-elements 6 $quick
check "sequences: 20 tokens" last_row_is rows 20
passes "fewer tokens than ranks" conv_halo_perf --ranks 6 --cu-seqlens 0,1,4 --row-elements 6 $quick
passes "sequences that ranks do not share" conv_halo_perf --ranks 2 --cu-seqlens 0,4,8 --row-elements 6 $quick
check "sequences that ranks do not share: no halo" last_row_is size 0

for program in conv_halo_perf state_chain_perf; do
  passes "$program, no tokens" $program --ranks 2 --cu-seqlens 0 $quick
  refuses "exclude each other" $program --ranks 2 --cu-seqlens 0,4 -b 4
  refuses "cuSeqlens" $program --ranks 2 --cu-seqlens 1,4
  refuses "cuSeqlens" $program --ranks 2 --cu-seqlens 0,4,3
done
refuses "conv-kernel must be 1 to" conv_halo_perf --ranks 2 --conv-kernel 0

# --- Chain of states ------------------------------------------------------------------------------------------

states="--heads 3 --key-dim 7 --value-dim 5"
for direction in "" --backward; do
  for ends in "" --initial --final "--initial --final"; do
    passes "a chain $direction $ends, one sequence" state_chain_perf --ranks 4 -b 64 $states $direction $ends $quick
    passes "a chain $direction $ends, many sequences" state_chain_perf --ranks 5 --cu-seqlens 0,3,9,9,20,40,41 $states \
      $direction $ends $quick
    passes "a chain $direction $ends, fewer tokens than ranks" state_chain_perf --ranks 6 --cu-seqlens 0,1,4 $states \
      $direction $ends $quick
  done
done
run state_chain_perf --ranks 4 -b 64 $states --backward --initial -n 1 -w 0 -J "$json"
check_json "a chain: JSON has what it was" \
  'd["type"] == "float32" and d["results"][0]["backward"] and d["results"][0]["initial"]' "$json"
check_json "a chain: where it starts, 3 states, transitions and initial states are sent" \
  'd["results"][0]["remote_bytes"] == 3 * 4 * 3 * 7 * (7 + 5 + 5)' "$json"
check "a chain: a rank hands on 3 x 7 x 12 floats" last_row_is size 1008
refuses "key-dim must be 1 to 384" state_chain_perf --ranks 2 --key-dim 385
refuses "too large" state_chain_perf --ranks 2 --value-dim 9223372036854775807
refuses "too large" state_chain_perf --ranks 2 --heads 9223372036854775807
refuses "unknown flag '--type'" state_chain_perf --ranks 2 --type float

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
  for program in $programs; do
    for fault in byte canary stale; do
      for after in 0 1; do # 1: the checked exchange is right, the timed one is not
        faulty $fault $after $program --ranks 2 -b 32 -n 1 -w 0 -J "$json"
        check "$program with a $fault fault from call $after on: exit status 1" exits 1
        check "$program with a $fault fault from call $after on: the footer says FAILED" \
          out_has '^# Out of bounds values : [1-9][0-9]* FAILED$'
        check "$program with a $fault fault from call $after on: the row has wrong bytes" rows_are_wrong
        check_json "$program with a $fault fault: so has the JSON" 'd["out_of_bounds_values"] > 0' "$json"
      done
    done
    faulty refuse 1 $program --ranks 3 -b 32 -n 4 -w 0 -T 1 -J "$json"
    check "$program with a refused call on one rank: exit status 3" exits 3
    check "$program with a refused call on one rank: says so" err_has 'remote error'
    check_json "$program with a refused call on one rank: the JSON is whole" 'd["failed"] is True' "$json"
  done
else
  echo "SKIPPED: faults under the programs (no libperf_fault.so, or one with a sanitizer, which cannot be preloaded)"
fi

# --- ulyx_plan context ----------------------------------------------------------------------------------------

run ulyx_plan context --cu-seqlens 0,700,1024 --ranks 4 --conv-kernel 4 --json
cp "$out" "$json"
check "context: exit status 0" exits 0
check "context: no error" err_is_progress
check_json "context: an object a rank, in order" '[c["rank"] for c in d] == [0, 1, 2, 3]' "$json"
check_json "context: exactly these members" 'all(set(c) == {"rank", "token_range", "local_cu_seqlens",
  "sequence_indices", "pre_num_conv_tokens", "pre_num_ranks", "is_first_rank", "post_num_ranks", "is_last_rank"}
  for c in d)' "$json"
check_json "context: ranges" \
  '[c["token_range"] for c in d] == [[0, 256], [256, 512], [512, 768], [768, 1024]]' "$json"
check_json "context: local cu_seqlens" \
  '[c["local_cu_seqlens"] for c in d] == [[0, 256], [0, 256], [0, 188, 256], [0, 256]]' "$json"
check_json "context: sequences" '[c["sequence_indices"] for c in d] == [[0], [0], [0, 1], [1]]' "$json"
check_json "context: tokens before" '[c["pre_num_conv_tokens"] for c in d] == [0, 256, 512, 68]' "$json"
check_json "context: ranks before and after" \
  '[(c["pre_num_ranks"], c["post_num_ranks"]) for c in d] == [(0, 2), (1, 1), (2, 1), (1, 0)]' "$json"
check_json "context: first and last are booleans" \
  '[c["is_first_rank"] for c in d] == [True, False, False, False] and d[3]["is_last_rank"] is True' "$json"

run ulyx_plan context --cu-seqlens 0,700,1024 --ranks 4 --rank 2 --json
cp "$out" "$json"
check_json "context of one rank: an array of one" 'len(d) == 1 and d[0]["rank"] == 2' "$json"
run ulyx_plan context --cu-seqlens 0,10 --ranks 2147483647 --rank 9 --json
cp "$out" "$json"
check_json "context of one rank among very many" 'd[0]["token_range"] == [9, 10] and d[0]["pre_num_ranks"] == 9' "$json"

run ulyx_plan context --cu-seqlens 0,10 --ranks 3 --json
cp "$out" "$json"
check_json "context, balanced: no token lost" '[c["token_range"] for c in d] == [[0, 4], [4, 7], [7, 10]]' "$json"
run ulyx_plan context --cu-seqlens 0,10 --ranks 3 --split truncate --json
cp "$out" "$json"
check_json "context, truncated: the tail is nobody's" \
  '[c["token_range"] for c in d] == [[0, 3], [3, 6], [6, 9]] and d[2]["post_num_ranks"] == 1' "$json"
run ulyx_plan context --cu-seqlens 0,4,4,9 --ranks 3 --split equal --json
cp "$out" "$json"
check_json "context, equal: an empty sequence appears nowhere" \
  '[c["sequence_indices"] for c in d] == [[0], [0, 2], [2]]' "$json"
run ulyx_plan context --cu-seqlens 0,1 --ranks 2 --json
cp "$out" "$json"
check_json "context of a rank without tokens: no sequences" \
  'd[1]["local_cu_seqlens"] == [0] and d[1]["sequence_indices"] == []' "$json"
check_json "context of a rank without tokens: nobody before or after it" \
  'd[1]["is_first_rank"] is True and d[1]["is_last_rank"] is True' "$json"

run ulyx_plan context --cu-seqlens 0,700,1024 --ranks 4 --conv-kernel 4
check "context as text: exit status 0" exits 0
check "context as text: a line a rank" out_has '^ *2  *\[512, 768)  *512  *3  *2  *1  *2  *0,188,256$'
run ulyx_plan context --cu-seqlens 0,10 --ranks 3 --split truncate
check "context as text, truncated: says what is lost" out_has 'the last 1 tokens belong to no rank'

run ulyx_plan -h
check "ulyx_plan -h names context" out_has '^  context'
run ulyx_plan context -h
check "ulyx_plan context -h: exit status 0" exits 0
for flag in --cu-seqlens --ranks --rank --conv-kernel --split --json; do
  check "ulyx_plan context -h names $flag" out_has "^  $flag"
done

refuses "cu-seqlens is needed" ulyx_plan context --ranks 2
refuses "ranks is needed" ulyx_plan context --cu-seqlens 0,2
refuses "rank must be below" ulyx_plan context --cu-seqlens 0,2 --ranks 2 --rank 2
refuses "ranks must be 1 to" ulyx_plan context --cu-seqlens 0,2 --ranks 0
refuses "name one with --rank" ulyx_plan context --cu-seqlens 0,2 --ranks 100000
refuses "at least 0, not -1" ulyx_plan context --cu-seqlens 0,-1 --ranks 2
refuses "separated by commas" ulyx_plan context --cu-seqlens 0,,1 --ranks 2
refuses "cuSeqlens" ulyx_plan context --cu-seqlens 3,4 --ranks 2
refuses "cuSeqlens" ulyx_plan context --cu-seqlens 0,4,3 --ranks 2
refuses "7 tokens equally over 4" ulyx_plan context --cu-seqlens 0,7 --ranks 4 --split equal
refuses "3 tokens" ulyx_plan context --cu-seqlens 0,3 --ranks 4 --split truncate
refuses "balanced|equal|truncate" ulyx_plan context --cu-seqlens 0,3 --ranks 4 --split halved
refuses "int32" ulyx_plan context --cu-seqlens 0,9000000000 --ranks 2

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
