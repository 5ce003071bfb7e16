# SPDX-License-Identifier: MIT
#
# A C header whose comments are prose, as Doxygen wants it: what a comment begins a line for is what follows it, what one
# stands behind is what it is about, and a ruled heading opens a group. Lines keep their numbers.

NR == 1 {
  print "/** @file" # in place of the licence
  next
}

/^\/\* ---- .* -+ \*\/$/ {
  title = $0
  gsub(/^\/\* ---- | -+ \*\/$/, "", title)
  file = FILENAME
  gsub(/.*\/|\..*/, "", file)
  printf "%s/** @defgroup %s_%d %s\n * @{ */\n", open ? "/** @} */ " : "", file, ++groups, title
  open = 1
  getline # the empty line below it
  next
}

# The end of the last group.
/^#ifdef __cplusplus$/ && open { print "/** @} */" }

/^ *\/\* / { sub(/\/\*/, "/**") }
/[^ ] *\/\* / && !/^#/ { sub(/\/\*/, "/**<") }
{ print }
