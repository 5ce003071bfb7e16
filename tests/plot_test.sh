#!/bin/sh
# SPDX-License-Identifier: MIT
#
# perf/plot.sh draws what perf programs and perf/compare.sh measured, and what docs/performance.md shows is drawn from
# that document's own table.
#
#   tests/plot_test.sh DIRECTORY    where the programs are
#
# Ends with one line, '<n> passed, <m> failed', and exits non-zero where one failed; 77 without gnuplot.
# shellcheck disable=SC2016,SC1003 # names and titles hold dollars and backslashes that stay as they are
set -u

if ! command -v gnuplot >/dev/null 2>&1; then
  echo "SKIPPED: no gnuplot"
  echo "0 passed, 0 failed, 1 skipped"
  exit 77
fi
project=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/perf_checks.sh
. "$project/tests/perf_checks.sh"

# plot FLAG...: perf/plot.sh.
plot() {
  command_line="plot.sh $*"
  sh "$project/perf/plot.sh" "$@" >"$out" 2>"$err"
  status=$?
}
# What of a drawing or of points is looked for.
svg=$scratch/drawing.svg
svg_has() { grep -q -e "$1" "$svg"; }
points() { LC_ALL=C awk -f "$project/perf/plot_points.awk" "$@"; }
points_have() {
  wanted=$1
  shift
  points "$@" | grep -q -x -F -e "$(printf '%b' "$wanted")"
}
if [ $have_python = yes ]; then
  svg_is_whole() { python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$svg"; }
else
  svg_is_whole() { grep -q '^</svg>' "$svg"; }
fi

# --- A program's sweep ----------------------------------------------------------------------------------------

run seq_to_heads_perf --ranks 2 -b 16 -e 256 --heads 2 --head-dim 8 -n 2 -w 1 -J "$json"
plot -o "$svg" "$json"
check "a sweep: exit status 0" exits 0
check "a sweep: says what it wrote" out_has "^SVG: $svg\$"
check "a sweep: a whole drawing" svg_is_whole
check "a sweep: its panel is the program" svg_has '>seq_to_heads_perf<'
check "a sweep: its line is the transport" svg_has '>ulyx loopback<'
check "a sweep: no limit on the CPU" [ "$(grep -c '>limit<' "$svg")" -eq 0 ]
check "a sweep: a point a size" [ "$(points "$json" | wc -l)" -eq 5 ]

cat >"$scratch/direct.json" <<'END'
{"program": "seq_to_heads_perf", "transport": "direct", "time": "maximum over ranks", "results": [{"tokens": 64, "size_bytes": 4096, "remote_bytes": 2048, "time_us": 10, "wrong_bytes": 0, "limit_us": 4, "via": "direct", "reason": "it was, as asked, direct", "nccl_us": 8, "out_of_place": {"time": 10}}, {"tokens": 128, "size_bytes": 8192, "remote_bytes": 4096, "time_us": 1, "wrong_bytes": 7, "limit_us": 1, "nccl_us": 1}], "failed": false}
END
sed 's/"transport": "direct"/"transport": "nccl"/; s/"time_us": 10/"time_us": 16/' "$scratch/direct.json" >"$scratch/nccl.json"
plot --title "What's measured" -o "$svg" "$scratch/direct.json" "$scratch/nccl.json"
check "two transports: exit status 0" exits 0
check "two transports: a title with a quote" svg_has "What's measured\|What&apos;s measured\|What&#39;s measured"
for who in limit 'NCCL alone' 'ulyx direct' 'ulyx nccl'; do check "two transports: $who" svg_has ">$who<"; done
check "two transports: one panel" [ "$(grep -c '>seq_to_heads_perf<' "$svg")" -eq 1 ]
check "remote bytes over time" points_have 'seq_to_heads_perf\tulyx direct\t4096\t0.2048' "$scratch/direct.json"
check "the limit's too" points_have 'seq_to_heads_perf\tlimit\t4096\t0.512' "$scratch/direct.json"
check "wrong data is not drawn" [ "$(points "$scratch/direct.json" | wc -l)" -eq 3 ]
cp "$scratch/direct.json" "$scratch/named.json"
plot "$scratch/named.json"
check "without -o the drawing lies beside the JSON" [ -s "$scratch/named.svg" ]
rm -f "$svg"
plot "$scratch/named.json" --title Later -o "$svg"
check "flags after the file: exit status 0" exits 0
check "flags after the file: drawn there" svg_has '>Later<'
# The directory of files with odd names, which are given as they are.
mkdir "$scratch/odd"
for odd in a=b.json '$(touch x).json' 'a b.json'; do
  cp "$scratch/direct.json" "$scratch/odd/$odd"
  command_line="plot.sh '$odd'"
  (cd "$scratch/odd" && sh "$project/perf/plot.sh" -o odd.svg "$odd") >"$out" 2>"$err"
  status=$?
  check "a file named '$odd': exit status 0" exits 0
  check "a file named '$odd': drawn" grep -q '>ulyx direct<' "$scratch/odd/odd.svg"
  rm -f "$scratch/odd/odd.svg"
done
# As jq -c and jq write it.
sed 's/: /:/g; s/, /,/g' "$scratch/direct.json" >"$scratch/short.json"
sed 's/, "/,\n\t"/g; s/}/\n}/g' "$scratch/direct.json" >"$scratch/long.json"
points "$scratch/direct.json" >"$scratch/points"
for kind in short long; do
  points "$scratch/$kind.json" >"$scratch/points.$kind"
  check "JSON in $kind lines has the same points" cmp -s "$scratch/points" "$scratch/points.$kind"
done

# --- Nothing of a file or a title is run ----------------------------------------------------------------------

trap_file=$scratch/pwned
# harmless NAME FLAG...: nothing ran.
harmless() {
  harmless_name=$1
  shift
  rm -f "$svg"
  plot -o "$svg" "$@"
  check "$harmless_name: nothing is run" [ ! -e "$trap_file" ]
  rm -f "$trap_file"
}
# row SIZE BYTES TIME: of a program's JSON.
row() { printf '{"tokens": 1, "size_bytes": %s, "remote_bytes": %s, "time_us": %s, "wrong_bytes": 0}' "$1" "$2" "$3"; }
evil=$scratch/evil.json
# json_of TRANSPORT PROGRAM ROW...
json_of() {
  printf '{"program": "%s", "transport": "%s", "results": [' "$2" "$1"
  shift 2
  printf '%s' "$1"
  shift
  [ $# -eq 0 ] || printf ', %s' "$@"
  printf ']}\n'
}
bang='"!>'"$trap_file"';#"'
json_of direct perf "$(row 0 1 1)" "$(row '"EOD"' 1 1)" "$(row "$bang" 1 1)" >"$evil"
harmless "sizes that end the data" "$evil"
check "sizes that end the data: nothing to draw" err_has 'nothing to draw'
check "sizes that end the data: exit status 2" exits 2
json_of direct perf "$(row 4096 2048 10)" "$(row '"EOD"' 1 1)" "$(row "$bang" 1 1)" >"$evil"
harmless "such sizes beside a right one" "$evil"
check "such sizes beside a right one: exit status 0" exits 0
check "such sizes beside a right one: one point" [ "$(points "$evil" | wc -l)" -eq 1 ]
for bad in '"EOD"' "$bang" -1 0 1e999 nan inf 0x10 1.2.3 '"1;2"' null; do
  json_of direct perf "$(row "$bad" 1 1)" "$(row 1 "$bad" 1)" "$(row 1 1 "$bad")" >"$evil"
  check "no point of $bad" [ "$(points "$evil" | wc -l)" -eq 0 ]
done
tick='`'
quote="'"
for text in "a${tick}touch $trap_file$tick" "a$quote; system(\"touch $trap_file\") #" "a\\$quote; system(\"touch $trap_file\") #" \
  'a{' 'a}' 'a\' '@a' '#a' "a
!touch $trap_file #" "a
EOD
!touch $trap_file #" "$(printf 'a\r!touch %s #' "$trap_file")"; do
  harmless "a title" --title "$text" "$scratch/direct.json"
  check "a title '$text': exit status 0" exits 0
  check "a title '$text': a whole drawing" svg_is_whole
  json_of "$text" "$text" "$(row 4096 2048 10)" >"$evil"
  harmless "a name in the JSON" "$evil"
  check "a name '$text' in the JSON: no failure of gnuplot" [ "$status" -ne 3 ]
done
plot -o "$svg" --title 'back\nslash' "$scratch/direct.json"
check "a title keeps its backslash" svg_has '>back\\nslash<'
printf 'x\ty' >"$scratch/tab"
json_of direct "$(cat "$scratch/tab")" "$(row 4096 2048 10)" >"$evil"
check "a tab in a name moves no field" [ "$(points "$evil" | cut -f 3)" = 4096 ]

# --- compare.sh -----------------------------------------------------------------------------------------------

sh "$project/perf/compare.sh" --gpus 0 -o "$scratch/compare" "$bin" >/dev/null 2>&1
for kind in compare sweep; do
  [ $kind = compare ] || sh "$project/perf/compare.sh" --gpus 0 --sweep -o "$scratch/compare" "$bin" >/dev/null 2>&1
  plot -o "$svg" "$scratch/compare/$kind.json"
  check "$kind.json: exit status 0" exits 0
  check "$kind.json: a panel an operation" [ "$(grep -c -e '>seq_to_heads, eager<' -e '>heads_to_seq, eager<' "$svg")" -eq 2 ]
  check "$kind.json: auto's line" svg_has '>ulyx auto<'
done

# --- docs/performance.md --------------------------------------------------------------------------------------

recorded=$project/docs/performance/two-h200s.json
check "the document shows the drawing" grep -q -F '](performance/two-h200s.svg)' "$project/docs/performance.md"
plot -o "$svg" "$recorded"
check "the recorded run: exit status 0" exits 0
check "the recorded run: a whole drawing" svg_is_whole
for who in limit 'NCCL alone' 'ulyx auto' 'ulyx direct' 'ulyx copy engine' 'ulyx nccl' 'PyTorch ragged' \
  'PyTorch contiguous' 'PyTorch tuned'; do
  check "the recorded run: $who" svg_has ">$who<"
  check "the drawing in the document: $who" grep -q -e ">$who<" "$project/docs/performance/two-h200s.svg"
done
check "the recorded run: auto at 4096 tokens" \
  points_have 'seq_to_heads, graph\tulyx auto\t37748736\t305.905' "$recorded"
# numbers COLUMN OPERATION LINE: the document's line has the numbers of the JSON's column, in order, but for bold.
numbers() {
  json_numbers=$(points_of "$1" "$2")
  document_numbers=$(sed -n '/^## Two H200s: every transport/,/^\*\*The sweep/p' "$project/docs/performance.md" |
    awk -v operation="$2" -v name="$3" -F ' *[|] *' '
      /^[|] seq_to_heads: tokens/ { now = "seq_to_heads" }
      /^[|] heads_to_seq [|]/ { now = "heads_to_seq" }
      now == operation && $2 == name { for (i = 3; i < NF; i++) { gsub(/[*]/, "", $i); sub(/ .*/, "", $i); if ($i != "") print $i } }')
  [ -n "$json_numbers" ] && [ "$json_numbers" = "$document_numbers" ]
}
points_of() { grep "\"operation\": \"$2\"" "$recorded" | sed -n "s/.*\"$1\": \([0-9.]*\),.*/\1/p" | grep .; }
command_line="docs/performance.md and $recorded"
for operation in seq_to_heads heads_to_seq; do
  for pair in 'ulyx_nccl_us:ulyx nccl' 'ulyx_direct_us:ulyx direct' 'ulyx_copy_engine_us:ulyx copy_engine' \
    'ulyx_auto_us:**ulyx auto**' 'pytorch_us:PyTorch, ragged'; do
    check "$operation: the drawing's ${pair#*:} is the table's" numbers "${pair%%:*}" $operation "${pair#*:}"
  done
done
check "seq_to_heads: the drawing's limit is the table's" \
  numbers limit_us seq_to_heads 'limit: one contiguous peer copy of the remote bytes'
check "heads_to_seq: the drawing's limit is the table's" numbers limit_us heads_to_seq limit
check "seq_to_heads: the drawing's NCCL alone is the table's" \
  numbers nccl_alone_us seq_to_heads 'NCCL send/recv alone, registered, 1 message'
check "heads_to_seq: the drawing's NCCL alone is the table's" numbers nccl_alone_us heads_to_seq 'NCCL send/recv alone'
check "the drawing's PyTorch, made contiguous, is the table's" \
  numbers pytorch_contiguous_us seq_to_heads 'PyTorch, ragged, made contiguous'
check "the drawing's PyTorch, tuned, is the table's" \
  numbers pytorch_tuned_us seq_to_heads 'PyTorch, tuned, equal parts only'

# --- Refusals -------------------------------------------------------------------------------------------------

# plot_refuses WHY STATUS FLAG...
plot_refuses() {
  why=$1 wanted_status=$2
  shift 2
  plot "$@"
  check "plot.sh refuses ($why): exit status $wanted_status" exits "$wanted_status"
  check "plot.sh refuses ($why): names it" err_has "$why"
  check "plot.sh refuses ($why): one line" err_is_one_line
  check "plot.sh refuses ($why): nothing on standard output" out_is_empty
}
rm -f "$svg"
plot_refuses "name a JSON file" 2
plot_refuses "unknown flag '--foo'" 2 --foo
plot_refuses "o takes a value" 2 -o
plot_refuses "cannot read $scratch/nowhere.json" 2 "$scratch/nowhere.json"
plot_refuses "$scratch is a directory" 2 "$scratch"
plot_refuses "o takes a value" 2 "$scratch/direct.json" -o
mkdir "$scratch/folder"
plot_refuses "cannot write the drawing to $scratch/folder, a directory" 2 -o "$scratch/folder" "$scratch/direct.json"
check "a directory as the drawing: nothing in it" [ -z "$(ls "$scratch/folder")" ]
plot_refuses "cannot write $scratch/nowhere/a.svg" 3 -o "$scratch/nowhere/a.svg" "$scratch/direct.json"
echo '{"program": "seq_to_heads_perf", "failed": true}' >"$scratch/failed.json"
plot_refuses "nothing to draw" 2 -o "$svg" "$scratch/failed.json"
check "nothing to draw: no drawing" [ ! -e "$svg" ]
plot -h
check "plot.sh -h: exit status 0" exits 0
check "plot.sh -h names --title" out_has '^  --title'

mkdir "$scratch/bare"
for tool in sh dirname basename cat sed; do ln -s "$(command -v $tool)" "$scratch/bare/$tool"; done
command_line="plot.sh without gnuplot"
PATH=$scratch/bare sh "$project/perf/plot.sh" -o "$svg" "$recorded" >"$out" 2>"$err"
status=$?
check "without gnuplot: exit status 3" exits 3
check "without gnuplot: says which package has it" err_has 'no gnuplot here; .*gnuplot-nox'
check "without gnuplot: one line" err_is_one_line
check "without gnuplot: no drawing" [ ! -e "$svg" ]

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
