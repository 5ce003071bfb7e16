# Runs a program of perf/ and judges its exit status, output and JSON: sourced by tests/perf_test.sh and
# tests/perf_rows_test.sh with the directory of the programs as $1. Counts into $passed and $failed.
# shellcheck shell=sh disable=SC2086,SC2034 # unquoted variables hold one word a flag; $json is for who sources this

bin=$(cd "${1:?usage: $0 DIRECTORY}" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0
status=0
out=$scratch/out
err=$scratch/err
json=$scratch/results.json

# Neither a launcher around this test nor its settings must reach the programs.
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS NCCL_COMM_ID
unset SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE
unset OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE ULYX_TRANSPORT ULYX_TIMEOUT_MS ULYX_FAULT ULYX_FAULT_AFTER
unset NCCL_TESTS_MIN_BW ULYX_MAX_CTAS ULYX_UNDISTURBED ULYX_COPY_STREAMS ULYX_STREAM_PRIORITY

# Runs a program; what follows looks at $status, $out and $err.
run() {
  command_line="$*"
  program=$1
  shift
  "$bin/$program" "$@" >"$out" 2>"$err"
  status=$?
}

# check NAME COMMAND...: one result, from the command's exit status.
check() {
  result=$1
  shift
  if "$@" >/dev/null 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $result"
    echo "  after: $command_line (exit status $status)"
    sed 's/^/  | /' "$err" | head -n 5
  fi
}

exits() { [ "$status" -eq "$1" ]; }
out_has() { grep -q -e "$1" "$out"; }
err_has() { grep -q -e "$1" "$err"; }
out_is_empty() { [ ! -s "$out" ]; }
err_is_progress() { ! grep -q -v '^#' "$err"; } # or empty
err_is_one_line() { [ "$(wc -l <"$err")" -eq 1 ]; }
rows_are() { [ "$(grep -c -v '^#' "$out")" -eq "$1" ]; }
# The wrong bytes of every row add up to more than none.
rows_are_wrong() { awk '!/^#/ && $9 > 0 { wrong = 1 } END { exit !wrong }' "$out"; }
# What stands under a title in the last row. What is swept is titled rows or tokens, whichever the program moves.
last_row() {
  awk -v title="$1" '
    function common(name) { return name == "rows" ? "tokens" : name }
    /^# *size .* count / { for (i = 2; i <= NF; i++) if (common($i) == common(title)) column = i - 1 }
    !/^#/ { value = $column }
    END { print value }' "$out"
}
last_row_is() { [ "$(last_row "$1")" = "$2" ]; }

# Right data, a whole table, at most progress on standard error.
passes() {
  name=$1
  shift
  run "$@"
  check "$name: exit status 0" exits 0
  check "$name: no value out of bounds" out_has '^# Out of bounds values : 0 OK$'
  check "$name: average bus bandwidth" out_has '^# Avg bus bandwidth    : [0-9]'
  check "$name: no error" err_is_progress
}

# Wrong usage: exit status 2, one line that says why, nothing on standard output.
refuses() {
  why=$1
  shift
  run "$@"
  check "refusal ($why): exit status 2" exits 2
  check "refusal ($why): names it" err_has "$why"
  check "refusal ($why): one line" err_is_one_line
  check "refusal ($why): nothing on standard output" out_is_empty
}

if command -v python3 >/dev/null 2>&1; then
  have_python=yes
else
  have_python=no
  echo "SKIPPED: what is in the JSON (no python3)"
fi

# json EXPRESSION FILE: the expression over the parsed document `d` holds.
json_holds() { python3 -c 'import json, sys; d = json.load(open(sys.argv[2])); sys.exit(not eval(sys.argv[1]))' "$1" "$2"; }
check_json() {
  [ $have_python = yes ] || return 0
  check "$1" json_holds "$2" "$3"
}
