#!/bin/sh
# SPDX-License-Identifier: MIT
#
# docs/errors.md against the library: every message that runtime/ can give stands there under its result code, none
# stands there that no code gives, and every result code has its row and its number.
#
# A message is what ulyxFail is given, what a guard loses its world with, or what is written into a `failure` or a `why`
# that it quotes. In the document it
# stands between backquotes at the beginning of a row, several with <br> between them; <words> stand for what is filled
# in: one conversion, or one word of a message that names it outright.
#
#   tests/errors_test.sh PROJECT
#
# Ends with one line, '<n> passed, <m> failed', and exits non-zero where one failed.
set -eu
project=$1
LC_ALL=C
export LC_ALL
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failures=0

# Lines FILE:LINE, code and message, by tabs; every conversion is <>. The code is ? where the caller computes it.
cat >"$tmp/messages.awk" <<'AWK'
function fault(what) { print FILENAME ":" line ": " what >"/dev/stderr"; faults = 1 }
# The argument that starts at `at`, which is left behind its comma or on its closing bracket.
function argument(    start, depth, c) {
  start = at
  depth = 0
  for (; at <= length(text); ++at) {
    c = substr(text, at, 1)
    if (c == "\"") { skipString(); continue }
    if (depth == 0 && (c == "," || c == ")")) break
    if (c == "(") ++depth
    if (c == ")") --depth
  }
  c = substr(text, start, at - start)
  if (substr(text, at, 1) == ",") ++at
  gsub(/^[ \n]+|[ \n]+$/, "", c)
  return c
}
function skipString() {
  for (++at; substr(text, at, 1) != "\""; ++at) if (substr(text, at, 1) == "\\") ++at
}
# Adjacent literals as one, with the macros of inttypes.h between them.
function literal(given,    joined, inside, i, c) {
  joined = ""
  inside = 0
  for (i = 1; i <= length(given); ++i) {
    c = substr(given, i, 1)
    if (c == "\\" && inside) { joined = joined substr(given, ++i, 1); continue }
    if (c == "\"") { inside = !inside; continue }
    if (inside) { joined = joined c; continue }
    if (match(substr(given, i), /^PRI[a-z]+[0-9]+/)) { joined = joined "d"; i += RLENGTH - 1 }
  }
  gsub(/%[-+ #0-9.*]*[hlzjt]*[a-zA-Z]/, "<>", joined)
  gsub(/(<>)+/, "<>", joined)
  return joined
}
function scan(    rest, call, code, format) {
  at = 1
  line = 1
  while (match(rest = substr(text, at), /(ulyxFail|ulyxGuardLose|loseNow|snprintf)\(/)) {
    code = substr(rest, 1, RSTART)
    line += gsub(/\n/, "", code)
    call = substr(rest, RSTART, RLENGTH)
    at += RSTART + RLENGTH - 1
    code = argument()
    if (call == "snprintf(" && substr(rest, RSTART - 1, 1) == "v") continue # of what its caller has named
    if (call == "snprintf(") {
      if (code !~ /(failure|why)$/) continue
      argument() # its size
      code = "?"
    } else if (call != "ulyxFail(") {
      code = argument() # behind the guard
    }
    format = argument()
    line += gsub(/\n/, "\n", format)
    if (format ~ /^const char\*/ || code == "code") continue # one of these itself
    if (format !~ /^"/) { fault("the message is no literal"); continue }
    format = literal(format)
    if (format == "<>") continue # what has been said already
    print FILENAME ":" line "\t" (code ~ /^ulyx[A-Za-z]+$/ ? code : "?") "\t" format
  }
}
FNR == 1 && text != "" { scan(); text = "" }
{ text = text $0 "\n"; FILE = FILENAME }
END { scan(); exit faults }
AWK

# Lines code and pattern, by a tab, from sections that are named by a code.
cat >"$tmp/patterns.awk" <<'AWK'
/^## / { code = $2; gsub(/`/, "", code); if (code !~ /^ulyx/) code = ""; next }
/^\| `/ && code != "" {
  split($0, columns, " \\| ")
  n = split(columns[1], pieces, "`")
  for (i = 2; i <= n; i += 2) print code "\t" pieces[i]
}
AWK

# One side's lines that no line of the other matches; `reverse` asks for patterns instead of messages.
cat >"$tmp/match.awk" <<'AWK'
function toRegex(pattern,    regex, i, c) {
  regex = "^"
  for (i = 1; i <= length(pattern); ++i) {
    c = substr(pattern, i, 1)
    if (match(substr(pattern, i), /^<[A-Za-z][^<>]*>/)) {
      regex = regex "(<>|[A-Za-z][A-Za-z0-9_.]*)"
      i += RLENGTH - 1
    } else if (c == "^" || c == "\\") regex = regex "\\" c
    else if (c ~ /[A-Za-z0-9 ,:;<>=%'"!_-]/) regex = regex c
    else regex = regex "[" c "]"
  }
  return regex "$"
}
BEGIN { FS = "\t" }
FILENAME == patterns { codes[++n] = $1; texts[n] = $2; regexes[n] = toRegex($2); next }
{
  found = 0
  for (i = 1; i <= n; ++i) {
    if ((codes[i] != $2 && $2 != "?") || $3 !~ regexes[i]) continue
    found = used[i] = 1
  }
  if (!found && !reverse) print $1 ": " $2 " \"" $3 "\""
}
END { for (i = 1; reverse && i <= n; ++i) if (!used[i]) print codes[i] " \"" texts[i] "\"" }
AWK

# report WHAT FILE: the lines of a file are failures.
report() {
  [ -s "$2" ] || return 0
  echo "FAILED: $1"
  sed 's/^/  /' "$2"
  failures=$((failures + $(wc -l <"$2")))
}

cd "$project"
for file in runtime/*.c runtime/*.h; do
  awk -f "$tmp/messages.awk" "$file" >>"$tmp/messages" 2>>"$tmp/faults" || true
done
awk -f "$tmp/patterns.awk" docs/errors.md >"$tmp/patterns"
sed -n 's/^  \(ulyx[A-Za-z]*\) = \([0-9]*\),\{0,1\}.*/\1 \2/p; /^} ulyxResult_t;/q' include/ulyx.h >"$tmp/codes"
[ -s "$tmp/messages" ] && [ -s "$tmp/patterns" ] && [ -s "$tmp/codes" ] || {
  echo "FAILED: found no messages, no rows or no codes"
  echo "0 passed, 1 failed"
  exit 1
}
awk -f "$tmp/match.awk" -v patterns="$tmp/patterns" "$tmp/patterns" "$tmp/messages" >"$tmp/missing"
awk -f "$tmp/match.awk" -v patterns="$tmp/patterns" -v reverse=1 "$tmp/patterns" "$tmp/messages" >"$tmp/stale"
while read -r name number; do
  grep -q "^| \`$name\` | $number |" docs/errors.md || echo "$name $number"
done <"$tmp/codes" >"$tmp/codeless"

report "messages of runtime/ that docs/errors.md does not have" "$tmp/missing"
report "rows of docs/errors.md that no code gives" "$tmp/stale"
report "result codes without a row '| \`name\` | number |'" "$tmp/codeless"
report "calls of ulyxFail that this test cannot read" "$tmp/faults"
echo "$(($(wc -l <"$tmp/messages") + $(wc -l <"$tmp/codes") - failures)) passed, $failures failed"
[ "$failures" -eq 0 ]
