/* SPDX-License-Identifier: MIT */
#include "flags.h"

#include <inttypes.h>
#include <string.h>

#include "numbers.h"
#include "report.h"
#include "types.h"

/* The place of text[0..length) among `list`'s items, -1 if it is none of them. */
static int placeInList(const char* list, char separator, const char* text, size_t length) {
  int place = 0;
  for (const char* item = list;; place++) {
    const char* end = strchr(item, separator);
    const size_t itemLength = end != NULL ? (size_t)(end - item) : strlen(item);
    if (itemLength == length && strncmp(item, text, length) == 0) return place;
    if (end == NULL) return -1;
    item = end + 1;
  }
}

static bool inRange(const perfFlag_t* flag, const char* name, int64_t value) {
  if (value >= flag->least && value <= flag->most) return true;
  if (flag->most == INT64_MAX) {
    perfError("%s must be at least %" PRId64 ", not %" PRId64, name, flag->least, value);
  } else {
    perfError("%s must be %" PRId64 " to %" PRId64 ", not %" PRId64, name, flag->least, flag->most, value);
  }
  return false;
}

static bool storeInt(const perfFlag_t* flag, const char* name, const char* text) {
  int64_t value = 0;
  const bool isNumber = flag->kind == perfFlagTokens ? perfParseScaledInt(text, &value) : perfParseInt(text, &value);
  if (!isNumber) {
    perfError("%s takes a number, not '%s'", name, text);
    return false;
  }
  if (!inRange(flag, name, value)) return false;
  *(int64_t*)flag->target = value;
  return true;
}

static bool storeCounts(const perfFlag_t* flag, const char* name, const char* text) {
  perfCounts_t* counts = flag->target;
  if (!perfParseCounts(text, counts)) {
    perfError("%s takes numbers separated by commas, not '%s'", name, text);
    return false;
  }
  for (int i = 0; i < counts->count; i++) {
    if (!inRange(flag, name, counts->values[i])) return false;
  }
  return true;
}

static bool storeReal(const perfFlag_t* flag, const char* name, const char* text) {
  double value = 0;
  if (!perfParseReal(text, &value)) {
    perfError("%s takes a number, not '%s'", name, text);
    return false;
  }
  if (value < (double)flag->least) {
    perfError("%s must be at least %" PRId64 ", not %s", name, flag->least, text);
    return false;
  }
  *(double*)flag->target = value;
  return true;
}

static bool storeType(const perfFlag_t* flag, const char* name, const char* text) {
  const perfType_t* type = perfTypeByName(text);
  if (type == NULL) {
    const bool all = strcmp(text, "all") == 0; /* nccl-tests' word */
    perfError(all ? "%s %s: a run has one type" : "%s: unknown type '%s'", name, text);
    return false;
  }
  *(const perfType_t**)flag->target = type;
  return true;
}

static bool storeChoice(const perfFlag_t* flag, const char* name, const char* text) {
  const int place = placeInList(flag->choices, '|', text, strlen(text));
  if (place < 0) {
    perfError("%s takes %s, not '%s'", name, flag->choices, text);
    return false;
  }
  *(int64_t*)flag->target = place;
  return true;
}

static bool acceptFixed(const perfFlag_t* flag, const char* name, const char* text) {
  if (placeInList(flag->choices, '|', text, strlen(text)) >= 0) return true;
  perfError("%s takes %s, not '%s': %s", name, flag->choices, text, flag->help);
  return false;
}

static bool store(const perfFlag_t* flag, const char* name, const char* text) {
  switch (flag->kind) {
    case perfFlagInt:
    case perfFlagTokens:
      return storeInt(flag, name, text);
    case perfFlagReal:
      return storeReal(flag, name, text);
    case perfFlagCounts:
      return storeCounts(flag, name, text);
    case perfFlagText:
      *(const char**)flag->target = text;
      return true;
    case perfFlagType:
      return storeType(flag, name, text);
    case perfFlagChoice:
      return storeChoice(flag, name, text);
    case perfFlagSwitch:
      *(int64_t*)flag->target = 1;
      return true;
    case perfFlagFixed:
      return acceptFixed(flag, name, text);
  }
  return false;
}

static const perfFlag_t* findFlag(const perfFlag_t* flags, int nFlags, const char* name, size_t length) {
  for (int f = 0; f < nFlags; f++) {
    if (placeInList(flags[f].names, ',', name, length) >= 0) return &flags[f];
  }
  return NULL;
}

perfParse_t perfParseFlags(const perfFlag_t* flags, int nFlags, int argc, char** argv, int first) {
  for (int i = first; i < argc; i++) {
    const char* argument = argv[i];
    if (strcmp(argument, "-h") == 0 || strcmp(argument, "--help") == 0) return perfHelpAsked;
    const bool isLong = strncmp(argument, "--", 2) == 0;
    const char* equals = isLong ? strchr(argument, '=') : NULL;
    size_t length = equals != NULL ? (size_t)(equals - argument) : strlen(argument);
    const char* text = equals != NULL ? equals + 1 : NULL;
    const perfFlag_t* flag = findFlag(flags, nFlags, argument, length);
    if (flag == NULL && !isLong && argument[0] == '-' && length > 2) { /* the value at once: -n20 */
      length = 2;
      text = argument + length;
      flag = findFlag(flags, nFlags, argument, length);
    }
    if (flag == NULL) {
      perfError("unknown %s '%s' (-h lists the flags)", argument[0] == '-' ? "flag" : "argument", argument);
      return perfRefused;
    }
    char name[64];
    (void)snprintf(name, sizeof(name), "%.*s", (int)length, argument);
    if (flag->kind == perfFlagSwitch && text != NULL) {
      perfError("%s takes no value", name);
      return perfRefused;
    }
    if (flag->kind != perfFlagSwitch && text == NULL) {
      if (i + 1 >= argc) {
        perfError("%s takes a value", name);
        return perfRefused;
      }
      text = argv[++i];
    }
    if (!store(flag, name, text)) return perfRefused;
  }
  return perfParsed;
}

static const char* valueText(const perfFlag_t* flag) {
  switch (flag->kind) {
    case perfFlagInt:
    case perfFlagTokens:
      return " N";
    case perfFlagReal:
      return " X";
    case perfFlagCounts:
      return " A,B,...";
    case perfFlagText:
      return flag->choices;
    case perfFlagType:
      return " TYPE";
    case perfFlagChoice:
    case perfFlagFixed:
      return flag->choices;
    case perfFlagSwitch:
      return "";
  }
  return "";
}

void perfPrintFlags(FILE* out, const perfFlag_t* flags, int nFlags) {
  for (int i = 0; i < nFlags; i++) {
    const char* gap = flags[i].choices != NULL ? " " : "";
    (void)fprintf(out, "  %s%s%s\n        %s\n", flags[i].names, gap, valueText(&flags[i]), flags[i].help);
  }
  (void)fprintf(out, "  -h,--help\n        this text\n");
}
