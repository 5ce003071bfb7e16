# SPDX-License-Identifier: MIT
#
# Points (plot_points.awk) as a script for gnuplot that draws them into the file $PLOT_SVG: a panel for each thing measured,
# in it a line for each who, $PLOT_TITLE over all. Both come by the environment, where awk leaves backslashes alone.

BEGIN {
  FS = "\t"
  style["limit"] = "lc rgb '#000000' dt 2 lw 2 pt 1"
  style["NCCL alone"] = "lc rgb '#777777' lw 2 pt 2"
  style["ulyx auto"] = "lc rgb '#0050b0' lw 3 pt 7"
  style["ulyx direct"] = "lc rgb '#2a9df4' lw 1 pt 4"
  style["ulyx copy engine"] = "lc rgb '#00a078' lw 1 pt 6"
  style["ulyx nccl"] = "lc rgb '#8060c0' lw 1 pt 8"
  style["ulyx loopback"] = "lc rgb '#0050b0' lw 3 pt 7"
  style["PyTorch ragged"] = "lc rgb '#d06000' lw 2 pt 5"
  style["PyTorch contiguous"] = "lc rgb '#c03028' lw 2 pt 9"
  style["PyTorch tuned"] = "lc rgb '#e0a000' lw 2 pt 11"
}

{
  if (!($1 in lines)) panels[++nPanels] = $1
  if (!(($1, $2) in points)) line[$1, ++lines[$1]] = $2
  if (!(($1, $2, $3) in seen)) points[$1, $2] = points[$1, $2] $3 " " $4 "\n"
  seen[$1, $2, $3] = 1
}

# A text in single quotes, where gnuplot runs no `command` and takes no backslash; a new line would end it.
function quoted(text) {
  gsub(/[\001-\037\177]/, " ", text)
  gsub(/'/, "''", text)
  return "'" text "'"
}

END {
  if (nPanels == 0) exit 1
  printf "set terminal svg size 900,%d noenhanced font 'sans-serif,13' background rgb 'white'\n", 60 + 420 * nPanels
  printf "set output %s\n", quoted(ENVIRON["PLOT_SVG"])
  # A data block of its own for every line, by size.
  for (p = 1; p <= nPanels; p++) {
    for (l = 1; l <= lines[panels[p]]; l++) printf "$p%dl%d << EOD\n%sEOD\n", p, l, points[panels[p], line[panels[p], l]]
  }
  print "set logscale x 2\nset format x '%.0b %BB'\nset xlabel 'bytes of the busiest rank before the exchange'"
  print "set ylabel 'remote bytes / time (GB/s)'\nset yrange [0:*]\nset grid\nset key outside right top\nset lmargin 10\nset rmargin 26"
  printf "set multiplot layout %d,1 title %s\n", nPanels, quoted(ENVIRON["PLOT_TITLE"])
  for (p = 1; p <= nPanels; p++) {
    printf "set title %s\nplot ", quoted(panels[p])
    for (l = 1; l <= lines[panels[p]]; l++) {
      who = line[panels[p], l]
      printf "%s$p%dl%d with linespoints %s title %s", (l > 1 ? ", \\\n  " : ""), p, l, style[who], quoted(who)
    }
    printf "\n"
  }
  print "unset multiplot"
}
