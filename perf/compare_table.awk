# SPDX-License-Identifier: MIT
#
# Facts (compare_facts.awk) as one table on standard output and as JSON in the file `json`. kind=compare or kind=sweep.
# Exit status 1 where data was wrong or auto has no time.

BEGIN {
  FS = "\t"
  # column:title:width
  spec = "ulyx_nccl_us:nccl:9 ulyx_direct_us:direct:9 ulyx_copy_engine_us:copy_engine:11 ulyx_auto_us:auto:9 via:choice:11"
  if (kind == "compare") {
    spec = "limit_us:limit:9 nccl_alone_us:nccl_alone:10 nccl_all_to_all_us:nccl_a2a:9 " spec " auto_over_limit:auto/limit:10 pytorch_us:seed:9 " \
           "pytorch_contiguous_us:seed_contig:11 pytorch_tuned_us:tuned:9"
  } else {
    spec = "size_bytes:bytes:10 " spec " predicted_us:pred:9 best_us:best:9 best_via:by:11 off_percent:off%:7"
  }
  # Not in the table: what turns times into bandwidths (plot.sh).
  nUnseen = split(kind == "compare" ? "size_bytes remote_bytes" : "remote_bytes limit_us", unseen, " ")
  nColumns = split(spec, specs, " ")
  for (i = 1; i <= nColumns; i++) {
    split(specs[i], parts, ":")
    column[i] = parts[1]
    title[i] = parts[2]
    width[i] = parts[3]
  }
}

!($1 in place) { place[$1] = ++nRows; row[nRows] = $1 }
{ facts[$1, $2] = $3 }

function value(key, name) { return (key, name) in facts && facts[key, name] != "" ? facts[key, name] : "null" }
function isNumber(text) { return text ~ /^-?[0-9]/ }

function derive(key,    auto, limit, names, i, us) {
  auto = value(key, "ulyx_auto_us")
  limit = value(key, "limit_us")
  if (!isNumber(auto)) failed = 1
  if (isNumber(auto) && isNumber(limit) && limit + 0 > 0) facts[key, "auto_over_limit"] = sprintf("%.4g", auto / limit)
  split("nccl direct copy_engine", names, " ")
  for (i = 1; i <= 3; i++) {
    us = value(key, "ulyx_" names[i] "_us")
    if (!isNumber(us) || (isNumber(value(key, "best_us")) && us + 0 >= value(key, "best_us") + 0)) continue
    facts[key, "best_us"] = us
    facts[key, "best_via"] = names[i]
  }
  if (isNumber(auto) && isNumber(value(key, "best_us"))) {
    facts[key, "off_percent"] = sprintf("%.2f", 100 * (auto / facts[key, "best_us"] - 1))
    if (worst == "" || facts[key, "off_percent"] + 0 > facts[worst, "off_percent"] + 0) worst = key
  }
}

function shown(name, text) {
  if (text == "null") return "N/A"
  if (!isNumber(text)) return text
  if (name == "off_percent") return sprintf("%+.1f", text)
  if (name == "auto_over_limit") return sprintf("%.3f", text)
  return name ~ /_us$/ ? sprintf(text + 0 < 100 ? "%.2f" : "%.1f", text) : text
}

function printRow(key,    parts, i) {
  split(key, parts, " ")
  printf "  %-5s  %-12s  %8s  %5s  %4s", parts[1], parts[2], parts[3], parts[4], parts[5]
  for (i = 1; i <= nColumns; i++) printf "  %" width[i] "s", shown(column[i], value(key, column[i]))
  printf "\n"
}

function writeRow(key,    parts, i, text, wrong) {
  split(key, parts, " ")
  printf "%s\n {\"mode\": \"%s\", \"operation\": \"%s\", \"tokens\": %s, \"heads\": %s, \"head_dim\": %s", \
    (written++ ? "," : ""), parts[1], parts[2], parts[3], parts[4], parts[5] >json
  for (i = 1; i <= nColumns; i++) {
    text = value(key, column[i])
    if (text == "WRONG") {
      wrong = wrong (wrong != "" ? ", " : "") "\"" column[i] "\""
      text = "null"
    }
    printf ", \"%s\": %s", column[i], (text == "null" || isNumber(text) ? text : "\"" text "\"") >json
  }
  for (i = 1; i <= nUnseen; i++) printf ", \"%s\": %s", unseen[i], value(key, unseen[i]) >json
  printf ", \"wrong\": [%s]}", wrong >json
  if (wrong != "") failed = 1
}

END {
  if (kind == "compare") {
    print "# microseconds; seed: PyTorch's stack, ragged all-to-all and concatenation, eager in eager rows and a graph in"
    print "# graph rows; seed_contig: the same with contiguous outputs; tuned: no stack, no concatenation, equal parts only"
  } else {
    print "# microseconds; bytes: of the busiest rank before the exchange; off%: how much longer auto took than the best"
  }
  printf "# %-5s  %-12s  %8s  %5s  %4s", "mode", "operation", "tokens", "heads", "dim"
  for (i = 1; i <= nColumns; i++) printf "  %" width[i] "s", title[i]
  printf "\n"
  printf "{\"ranks\": %d, \"gpus\": %s, \"results\": [", ranks, (gpus >= 2 ? "true" : "false") >json
  for (r = 1; r <= nRows; r++) {
    derive(row[r])
    printRow(row[r])
    writeRow(row[r])
  }
  printf "\n]}\n" >json
  if (kind == "sweep") {
    if (worst == "") {
      print "# Worst of auto: N/A, nothing to hold it against"
    } else {
      split(worst, parts, " ")
      printf "# Worst of auto: %s %% off: %s of %s bytes (%s tokens, %s heads, dim %s): %s us by %s, best %s us by %s\n", \
        shown("off_percent", facts[worst, "off_percent"]), parts[2], facts[worst, "size_bytes"], parts[3], parts[4], \
        parts[5], shown("_us", facts[worst, "ulyx_auto_us"]), facts[worst, "via"], shown("_us", facts[worst, "best_us"]), \
        facts[worst, "best_via"]
    }
  }
  exit (failed || nRows == 0)
}
