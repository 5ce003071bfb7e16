/* SPDX-License-Identifier: MIT
 *
 * Which GPUs the built library has code for, read from the library itself. Each file of kernels leaves a container in
 * its section .nv_fatbin, and a container has an entry for each architecture: code, or PTX, which the driver compiles
 * for GPUs that came later. The layout is that of what nvcc writes, checked against nvcc 13.0.
 *
 *   fat_binary_test LIBRARY FILES ARCHITECTURES [CUDA]
 *
 * FILES of kernels at least. ARCHITECTURES as in CMAKE_CUDA_ARCHITECTURES, by commas. CUDA is its version where the
 * architectures are those that a build has unless told: then they are also held against what docs/embedding.md
 * promises. Each entry is then changed and taken away in turn, which must be seen.
 *
 * Ends with one line, '<n> passed, <m> failed', and exits non-zero where one failed, 77 without architectures. */
#include <elf.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0xba55ed50u
#define CONTAINER_BYTES 16 /* magic, version, bytes of this header, bytes behind it */
#define ENTRY_BYTES 32     /* kind, version, bytes of this header, bytes behind it; at 28 the architecture */
#define ARCHITECTURE_AT 28
#define SKIPPED 77
#define MAX_ENTRIES 4096
#define MAX_ARCHITECTURES 64

enum { kindPtx = 1, kindCode = 2 };

typedef struct {
  int container;
  uint16_t kind;
  uint32_t architecture;
} Entry;

typedef struct {
  int containers;
  int count;
  Entry entries[MAX_ENTRIES];
} Entries;

/* What a container is to have. */
typedef struct {
  int count;
  struct {
    uint16_t kind;
    uint32_t architecture;
  } of[MAX_ARCHITECTURES];
} Wanted;

static int passed = 0;
static int failed = 0;

static void check(bool ok, const char* what) {
  if (ok) {
    passed++;
  } else {
    failed++;
    printf("FAILED: %s\n", what);
  }
}

static void want(Wanted* wanted, uint16_t kind, uint32_t architecture) {
  if (wanted->count == MAX_ARCHITECTURES) return;
  wanted->of[wanted->count].kind = kind;
  wanted->of[wanted->count].architecture = architecture;
  wanted->count++;
}

/* CMake's list: 90 is code and PTX, 90-real code, 90-virtual PTX. False for what is no such list. */
static bool readArchitectures(const char* list, Wanted* wanted) {
  for (const char* item = list;;) {
    char* end = NULL;
    const unsigned long architecture = strtoul(item, &end, 10);
    if (end == item) return false;
    if (*end == 'a' || *end == 'f') end++; /* of this architecture, or family, alone */
    const size_t length = strcspn(end, ",");
    const bool real = length == 5 && strncmp(end, "-real", length) == 0;
    const bool virtual = length == 8 && strncmp(end, "-virtual", length) == 0;
    if (length != 0 && !real && !virtual) return false;
    if (!virtual) want(wanted, kindCode, (uint32_t)architecture);
    if (!real) want(wanted, kindPtx, (uint32_t)architecture);
    if (end[length] == '\0') return true;
    item = end + length + 1;
  }
}

/* What a build has unless told otherwise. */
static bool readDefault(const char* cuda, Wanted* wanted) {
  int major = 0;
  int minor = 0;
  if (sscanf(cuda, "%d.%d", &major, &minor) != 2) return false;
  const bool hasBlackwell = major > 12 || (major == 12 && minor >= 8);
  want(wanted, kindCode, 80);
  want(wanted, kindCode, 90);
  if (hasBlackwell) want(wanted, kindCode, 100);
  want(wanted, kindPtx, hasBlackwell ? 100 : 90);
  return true;
}

static void* readFile(const char* path, size_t* bytes) {
  void* data = NULL;
  FILE* file = fopen(path, "rb");
  if (file == NULL) return NULL;
  long size = 0;
  if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) > 0 && fseek(file, 0, SEEK_SET) == 0) {
    data = malloc((size_t)size);
    if (data != NULL && fread(data, 1, (size_t)size, file) != (size_t)size) {
      free(data);
      data = NULL;
    }
  }
  (void)fclose(file);
  *bytes = (size_t)size;
  return data;
}

/* A section of a 64-bit ELF file; NULL where there is none that lies within the file. */
static unsigned char* findSection(unsigned char* file, size_t bytes, const char* name, size_t* sectionBytes) {
  Elf64_Ehdr header;
  Elf64_Shdr names;
  Elf64_Shdr section;
  if (bytes < sizeof(header)) return NULL;
  memcpy(&header, file, sizeof(header));
  const bool isElf = memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64;
  if (!isElf || header.e_shoff > bytes || (bytes - header.e_shoff) / sizeof(section) < header.e_shnum) return NULL;
  if (header.e_shstrndx >= header.e_shnum) return NULL;
  const unsigned char* table = file + header.e_shoff;
  memcpy(&names, table + header.e_shstrndx * sizeof(names), sizeof(names));
  for (int i = 0; i < header.e_shnum; i++) {
    memcpy(&section, table + (size_t)i * sizeof(section), sizeof(section));
    const uint64_t nameAt = names.sh_offset + section.sh_name;
    if (nameAt >= bytes || bytes - nameAt <= strlen(name)) continue;
    if (memcmp(file + nameAt, name, strlen(name) + 1) != 0) continue;
    if (section.sh_offset > bytes || bytes - section.sh_offset < section.sh_size) return NULL;
    *sectionBytes = section.sh_size;
    return file + section.sh_offset;
  }
  return NULL;
}

static uint16_t read16(const unsigned char* at) {
  uint16_t value;
  memcpy(&value, at, sizeof(value));
  return value;
}
static uint32_t read32(const unsigned char* at) {
  uint32_t value;
  memcpy(&value, at, sizeof(value));
  return value;
}
static uint64_t read64(const unsigned char* at) {
  uint64_t value;
  memcpy(&value, at, sizeof(value));
  return value;
}

/* The entries of a container's `bytes` bytes behind its header. */
static bool readContainer(const unsigned char* data, uint64_t bytes, Entries* entries) {
  while (bytes > 0) {
    if (bytes < ENTRY_BYTES || entries->count == MAX_ENTRIES) return false;
    const uint64_t header = read32(data + 4);
    const uint64_t payload = read64(data + 8);
    if (header < ENTRY_BYTES || header > bytes || payload > bytes - header) return false;
    entries->entries[entries->count++] = (Entry){entries->containers, read16(data), read32(data + ARCHITECTURE_AT)};
    data += header + payload;
    bytes -= header + payload;
  }
  entries->containers++;
  return true;
}

/* All containers of a section, between which there are zeros. */
static bool readSection(const unsigned char* data, size_t bytes, Entries* entries) {
  entries->containers = 0;
  entries->count = 0;
  while (bytes >= CONTAINER_BYTES) {
    const uint64_t header = read16(data + 6);
    const uint64_t size = read64(data + 8);
    if (read32(data) == 0) {
      data += 4;
      bytes -= 4;
      continue;
    }
    if (read32(data) != MAGIC || header < CONTAINER_BYTES || header > bytes || size > bytes - header) return false;
    if (!readContainer(data + header, size, entries)) return false;
    data += header + size;
    bytes -= header + size;
  }
  return true;
}

static bool isWanted(const Wanted* wanted, const Entry* entry) {
  for (int i = 0; i < wanted->count; i++) {
    if (wanted->of[i].kind == entry->kind && wanted->of[i].architecture == entry->architecture) return true;
  }
  return false;
}

/* Each container has what is wanted and nothing else. Otherwise `why` says what. */
static bool holds(const Entries* entries, const Wanted* wanted, char* why, size_t bytes) {
  for (int c = 0; c < entries->containers; c++) {
    for (int i = 0; i < wanted->count; i++) {
      bool there = false;
      for (int e = 0; e < entries->count; e++) {
        const Entry* entry = &entries->entries[e];
        there = there || (entry->container == c && entry->kind == wanted->of[i].kind &&
                          entry->architecture == wanted->of[i].architecture);
      }
      if (there) continue;
      (void)snprintf(why, bytes, "container %d has no %s of %" PRIu32, c,
                     wanted->of[i].kind == kindPtx ? "PTX" : "code", wanted->of[i].architecture);
      return false;
    }
  }
  for (int e = 0; e < entries->count; e++) {
    const Entry* entry = &entries->entries[e];
    if (isWanted(wanted, entry)) continue;
    (void)snprintf(why, bytes, "container %d has an entry of kind %d for %" PRIu32 ", which nobody asked for",
                   entry->container, entry->kind, entry->architecture);
    return false;
  }
  return true;
}

static void printFirst(const Entries* entries) {
  printf("%d containers, the first of", entries->containers);
  for (int e = 0; e < entries->count && entries->entries[e].container == 0; e++) {
    const Entry* entry = &entries->entries[e];
    printf(" %s_%" PRIu32, entry->kind == kindPtx ? "compute" : "sm", entry->architecture);
  }
  printf("\n");
}

/* Whether each entry would be missed, and a section that is cut short seen. */
static void checkTheCheck(const unsigned char* section, Entries* entries, const Wanted* wanted) {
  char why[256];
  for (int e = 0; e < entries->count; e++) {
    const Entry kept = entries->entries[e];
    entries->entries[e].architecture = 1;
    check(!holds(entries, wanted, why, sizeof(why)), "an entry of another architecture is seen");
    entries->entries[e] = kept;
    entries->entries[e].kind = kept.kind == kindPtx ? kindCode : kindPtx;
    check(!holds(entries, wanted, why, sizeof(why)), "code in place of PTX is seen, and PTX in place of code");
    entries->entries[e] = entries->entries[--entries->count];
    check(!holds(entries, wanted, why, sizeof(why)), "an entry that is missing is seen");
    entries->entries[entries->count++] = entries->entries[e];
    entries->entries[e] = kept;
  }
  check(!readSection(section, CONTAINER_BYTES + ENTRY_BYTES, entries), "a container that is cut short is refused");
}

int main(int argc, char** argv) {
  static Entries entries;
  Wanted wanted = {0};
  Wanted promised = {0};
  size_t bytes = 0;
  size_t sectionBytes = 0;
  char why[256] = "";
  if (argc != 4 && argc != 5) {
    (void)fprintf(stderr, "usage: %s LIBRARY FILES ARCHITECTURES [CUDA]\n", argv[0]);
    return 2;
  }
  if (!readArchitectures(argv[3], &wanted)) {
    printf("SKIPPED: '%s' names no architectures\n0 passed, 0 failed, 1 skipped\n", argv[3]);
    return SKIPPED;
  }
  unsigned char* file = readFile(argv[1], &bytes);
  unsigned char* section = file != NULL ? findSection(file, bytes, ".nv_fatbin", &sectionBytes) : NULL;
  check(section != NULL, "the library has a section .nv_fatbin");
  if (section != NULL && readSection(section, sectionBytes, &entries)) {
    printFirst(&entries);
    check(entries.containers >= atoi(argv[2]), "each file of kernels has its container");
    check(holds(&entries, &wanted, why, sizeof(why)), why);
    if (argc == 5) {
      check(readDefault(argv[4], &promised), "CUDA has a version");
      check(holds(&entries, &promised, why, sizeof(why)), why);
    }
    if (failed == 0) checkTheCheck(section, &entries, &wanted);
  } else {
    check(false, "the section .nv_fatbin is made of containers");
  }
  free(file);
  printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
