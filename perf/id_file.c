/* SPDX-License-Identifier: MIT */
#include "id_file.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "report.h"
#include "stats.h"

typedef struct idRecord {
  char magic[8];
  int64_t nRanks;
  int64_t writtenS; /* seconds since 1970 */
  uint64_t job;
  ulyxUniqueId_t id;
} idRecord_t;

static const char idMagic[8] = "ulyxid1";

bool perfIdFileWrite(const char* path, int nRanks, uint64_t job, const ulyxUniqueId_t* id) {
  idRecord_t record;
  memset(&record, 0, sizeof(record));
  memcpy(record.magic, idMagic, sizeof(record.magic));
  record.nRanks = nRanks;
  record.writtenS = (int64_t)time(NULL);
  record.job = job;
  record.id = *id;

  char besidePath[4096];
  const int length = snprintf(besidePath, sizeof(besidePath), "%s.%ld", path, (long)getpid());
  if (length < 0 || (size_t)length >= sizeof(besidePath)) {
    perfError("the path of --id-file is too long");
    return false;
  }
  if (unlink(path) != 0 && errno != ENOENT) {
    perfError("cannot remove what lies at %s: %s", path, strerror(errno));
    return false;
  }
  FILE* file = fopen(besidePath, "wb");
  if (file == NULL) {
    perfError("cannot write %s: %s", besidePath, strerror(errno));
    return false;
  }
  const bool written = fwrite(&record, sizeof(record), 1, file) == 1;
  const bool closed = fclose(file) == 0;
  if (!written || !closed || rename(besidePath, path) != 0) {
    perfError("cannot write %s: %s", path, strerror(errno));
    (void)unlink(besidePath);
    return false;
  }
  return true;
}

bool perfIdFileRead(const char* path, int nRanks, uint64_t job, int timeoutS, ulyxUniqueId_t* id) {
  const int64_t startedS = (int64_t)time(NULL);
  const double deadlineUs = perfNowUs() + timeoutS * 1e6;
  const struct timespec pause = {0, 20 * 1000 * 1000};
  while (perfNowUs() < deadlineUs) {
    idRecord_t record;
    FILE* file = fopen(path, "rb");
    if (file != NULL) {
      const bool whole = fread(&record, sizeof(record), 1, file) == 1;
      (void)fclose(file);
      if (whole && memcmp(record.magic, idMagic, sizeof(idMagic)) == 0 && record.nRanks == nRanks &&
          record.job == job && record.writtenS >= startedS - PERF_ID_FILE_SLACK_S) {
        *id = record.id;
        return true;
      }
    }
    (void)nanosleep(&pause, NULL);
  }
  perfError("rank 0 did not write this run's unique id to %s within %d s", path, timeoutS);
  return false;
}
