#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Draws bandwidth against size, beside the limit and the peers, from the JSON of perf programs (-J, best of a sweep) or of
# compare.sh (compare.json, sweep.json). Needs gnuplot.
#
#   perf/plot.sh [-o FILE.svg] [--title TEXT] JSON...
#
#   -o FILE.svg      what is written [the first JSON's name with .svg]
#   --title TEXT     over the drawing [the first JSON's name]
#
# Each operation, eager or as graphs, has a panel of its own; several runs of one program, by other transports, share one.
# Rows of wrong data are left out. Exit status: 0 drawn, 2 wrong usage or nothing to draw, 3 any other failure.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
refuse() {
  echo "error: $1" >&2
  exit "${2:-2}"
}

svg='' title=''
# Flags may follow the files, which go to the end of the line one by one.
left=$#
while [ $left -gt 0 ]; do
  case $1 in
    -h | --help) exec sed -n '4,/^set/{ /^#/s/^# \{0,1\}//p; }' "$0" ;;
    -o | --title)
      [ $left -ge 2 ] || refuse "$1 takes a value"
      case $1 in -o) svg=$2 ;; --title) title=$2 ;; esac
      shift
      left=$((left - 1))
      ;;
    -*) refuse "unknown flag '$1' (-h lists the flags)" ;;
    *) set -- "$@" "$1" ;;
  esac
  shift
  left=$((left - 1))
done
[ $# -gt 0 ] || refuse "name a JSON file of a perf program or of compare.sh"
for json in "$@"; do
  [ ! -d "$json" ] || refuse "$json is a directory, not a JSON file"
  [ -r "$json" ] || refuse "cannot read $json"
done
svg=${svg:-${1%.json}.svg}
[ ! -d "$svg" ] || refuse "cannot write the drawing to $svg, a directory"
command -v gnuplot >/dev/null 2>&1 || refuse "no gnuplot here; Debian and Ubuntu have it as gnuplot-nox" 3
title=${title:-$(basename -- "$1" .json)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# By size; what was measured and who keep the order of the files.
for json in "$@"; do LC_ALL=C awk -f "$here/plot_points.awk" <"$json"; done |
  awk -F '\t' '{ key = $1 FS $2; if (!(key in place)) place[key] = ++n; print place[key] FS $0 }' |
  LC_ALL=C sort -s -t "$(printf '\t')" -k 1,1n -k 4,4n | cut -f 2- >"$work/points"
[ -s "$work/points" ] || refuse "nothing to draw in $*: no row has a size, remote bytes and a time"
PLOT_SVG=$work/drawing.svg PLOT_TITLE=$title LC_ALL=C awk -f "$here/plot_script.awk" "$work/points" >"$work/script"
gnuplot "$work/script" >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  refuse "gnuplot failed" 3
}
cp -- "$work/drawing.svg" "$svg" 2>/dev/null || refuse "cannot write $svg" 3
echo "SVG: $svg"
