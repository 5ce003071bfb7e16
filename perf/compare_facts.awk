# SPDX-License-Identifier: MIT
#
# The rows of a perf program's JSON (kind=ulyx) or of peers_pytorch.py's (kind=peers) as facts, one a line, tabs between:
#
#   MODE OPERATION TOKENS HEADS DIM     column     value as JSON has it, or WRONG where the data was
#
# Reads no more JSON than those programs write: a row is what follows a brace, and no text in it has a comma.

BEGIN { RS = "{" }

function member(name,    text) {
  if (!match($0, "\"" name "\": [^,}]*")) return "null"
  text = substr($0, RSTART, RLENGTH)
  sub(/^[^:]*: /, "", text)
  gsub(/["\n ]/, "", text)
  return text
}

function fact(operation, dim, column, value) {
  printf "%s %s %s %s %s\t%s\t%s\n", mode, operation, member("tokens"), member("heads"), dim, column, value
}

kind == "ulyx" && /"time_us": / {
  dim = member("head_dim")
  fact(operation, dim, "ulyx_" transport "_us", member("wrong_bytes") + 0 > 0 ? "WRONG" : member("time_us"))
  fact(operation, dim, "size_bytes", member("size_bytes"))
  fact(operation, dim, "remote_bytes", member("remote_bytes"))
  if (transport == "auto") {
    fact(operation, dim, "via", member("via"))
    fact(operation, dim, "predicted_us", member("predicted_us"))
    fact(operation, dim, "limit_us", member("limit_us"))
    fact(operation, dim, "nccl_alone_us", member("nccl_us"))
    fact(operation, dim, "nccl_all_to_all_us", member("nccl_all_to_all_us"))
  }
}

kind == "peers" && /"way": / {
  way = member("way")
  column = "pytorch_us"
  if (way == "seq_to_heads_contiguous") column = "pytorch_contiguous_us"
  if (way == "seq_to_heads_tuned") column = "pytorch_tuned_us"
  operation = way ~ /^seq_to_heads/ ? "seq_to_heads" : way
  fact(operation, member("dim"), column, member("right") == "false" ? "WRONG" : member(mode "_us"))
}
