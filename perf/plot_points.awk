# SPDX-License-Identifier: MIT
#
# The rows of perf programs' JSON and of compare.sh's as points, one a line, tabs between:
#
#   what was measured     who     bytes of the size column     GB/s of remote bytes
#
# Reads no more JSON than those write: a row is what follows a brace, and no member that is looked for has a comma in it.
# Wrong data makes no point, and neither does what is no number: the points become a part of gnuplot's script.

BEGIN {
  RS = "{"
  split("limit_us:limit nccl_alone_us:NCCL_alone ulyx_auto_us:ulyx_auto ulyx_direct_us:ulyx_direct " \
        "ulyx_copy_engine_us:ulyx_copy_engine ulyx_nccl_us:ulyx_nccl pytorch_us:PyTorch_ragged " \
        "pytorch_contiguous_us:PyTorch_contiguous pytorch_tuned_us:PyTorch_tuned", peers, " ")
}

function member(name,    text) {
  if (!match($0, "\"" name "\":[^,}]*")) return "null"
  text = substr($0, RSTART, RLENGTH)
  sub(/^[^:]*:/, "", text)
  gsub(/["\001-\040]/, "", text)
  return text
}

function isNumber(text) {
  return text ~ /^[0-9]+([.][0-9]*)?([eE][+-]?[0-9]+)?$/ && text + 0 > 0 && text + 0 < 1e100
}

function point(panel, series, us,    size, bytes) {
  size = member("size_bytes")
  bytes = member("remote_bytes")
  if (!isNumber(us) || !isNumber(size) || !isNumber(bytes)) return
  gsub(/_/, " ", series)
  printf "%s\t%s\t%s\t%.6g\n", panel, series, size, bytes / us / 1000
}

/"program":/ {
  program = member("program")
  transport = member("transport")
}

/"operation":/ {
  panel = member("operation") ", " member("mode")
  for (i = 1; i in peers; i++) {
    split(peers[i], of, ":")
    point(panel, of[2], member(of[1]))
  }
}

/"time_us":/ && !/"operation":/ && member("wrong_bytes") == "0" {
  point(program, "limit", member("limit_us"))
  point(program, "NCCL_alone", member("nccl_us"))
  point(program, "ulyx_" transport, member("time_us"))
}
