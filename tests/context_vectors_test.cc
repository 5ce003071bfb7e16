// SPDX-License-Identifier: MIT
//
// Recorded contexts, tests/vectors/cp_context.tsv: one row a (cu_seqlens, world, rank, kernel). They come from
// shards of total // world tokens with the tail dropped, so truncate must reproduce all of them, and the other
// splits those whose total divides.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support/contexts.h"
#include "support/status.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

using Row = std::map<std::string, std::string>;

std::vector<std::string> Cut(const std::string& line, char separator) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == separator) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

std::vector<Row> Rows() {
  const std::string here = __FILE__;
  std::ifstream file(here.substr(0, here.rfind('/') + 1) + "vectors/cp_context.tsv");
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> names = Cut(line, '\t');
  std::vector<Row> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> fields = Cut(line, '\t');
    Row row;
    for (size_t i = 0; i < fields.size(); i++) row[names[i]] = fields[i];
    rows.push_back(row);
  }
  return rows;
}

template <typename Int>
std::vector<Int> Numbers(const std::string& list) {
  std::vector<Int> numbers;
  for (const std::string& field : Cut(list, ',')) numbers.push_back(Int(std::stoll(field)));
  return numbers;
}

int Number(const Row& row, const std::string& name) {
  return std::stoi(row.at(name));
}

bool IsOk(const Row& row) {
  return row.at("status") == "ok";
}

// Both types must give the same.
ulyxResult_t Create(const Row& row, int split, int type, ulyxContext_t* context) {
  const std::vector<int64_t> wide = Numbers<int64_t>(row.at("cu_seqlens"));
  const std::vector<int32_t> narrow(wide.begin(), wide.end());
  const void* const data = type == ulyxInt64 ? static_cast<const void*>(wide.data()) : narrow.data();
  ulyxSequences_t sequences = nullptr;
  MUST(ulyxSequencesCreate(data, int64_t(wide.size()), type, &sequences));
  const ulyxResult_t result =
      ulyxContextCreate(sequences, Number(row, "world"), Number(row, "rank"), split, Number(row, "kernel"), context);
  MUST(ulyxSequencesDestroy(sequences));
  return result;
}

void ExpectRow(const Row& row, int split, int type) {
  ulyxContext_t context = nullptr;
  MUST(Create(row, split, type, &context));
  const ulyxContextInfo_t info = InfoOf(context);
  const std::vector<int32_t> local(info.localCuSeqlens, info.localCuSeqlens + info.numSequences + 1);
  EXPECT_EQ(local, Numbers<int32_t>(row.at("local_cu_seqlens")));
  EXPECT_EQ(info.preNumConvTokens, Number(row, "pre_num_conv_tokens"));
  EXPECT_EQ(info.preNumRanks, Number(row, "pre_num_ranks"));
  EXPECT_EQ(info.isFirstRank, Number(row, "is_first_rank"));
  EXPECT_EQ(info.postNumRanks, Number(row, "post_num_ranks"));
  EXPECT_EQ(info.isLastRank, Number(row, "is_last_rank"));
  MUST(ulyxContextDestroy(context));
}

bool Divides(const Row& row) {
  return Numbers<int64_t>(row.at("cu_seqlens")).back() % Number(row, "world") == 0;
}

std::string Name(const Row& row) {
  return row.at("cu_seqlens") + " over " + row.at("world") + ", rank " + row.at("rank");
}

}  // namespace

TEST(ContextVectors, AreAllThere) {
  int ok = 0, raised = 0;
  for (const Row& row : Rows()) (IsOk(row) ? ok : raised)++;
  EXPECT_EQ(ok, 475);
  EXPECT_EQ(raised, 38);
}

TEST(ContextVectors, AreReproducedByTruncate) {
  for (const Row& row : Rows()) {
    if (!IsOk(row)) continue;
    SCOPED_TRACE(Name(row));
    for (const int type : {ulyxInt32, ulyxInt64}) ExpectRow(row, ulyxSplitTruncate, type);
  }
}

TEST(ContextVectors, ThatDivideAreReproducedByEqualAndBalanced) {
  int seen = 0;
  for (const Row& row : Rows()) {
    if (!IsOk(row) || !Divides(row)) continue;
    SCOPED_TRACE(Name(row));
    seen++;
    for (const int split : {ulyxSplitEqual, ulyxSplitBalanced}) ExpectRow(row, split, ulyxInt64);
  }
  EXPECT_GT(seen, 100);
}

TEST(ContextVectors, ThatDoNotDivideAreRefusedByEqualWithBothNumbers) {
  int seen = 0;
  for (const Row& row : Rows()) {
    if (Divides(row)) continue;
    SCOPED_TRACE(Name(row));
    seen++;
    ulyxContext_t context = nullptr;
    const std::string total = std::to_string(Numbers<int64_t>(row.at("cu_seqlens")).back());
    EXPECT_TRUE(Refused(Create(row, ulyxSplitEqual, ulyxInt64, &context), ulyxInvalidArgument,
                        {total + " tokens", row.at("world") + " ranks"}));
    EXPECT_EQ(context, nullptr);
  }
  EXPECT_GT(seen, 100);
}

TEST(ContextVectors, ThatRaisedAreRefusedByTruncateAndEqualAndServedByBalanced) {
  for (const Row& row : Rows()) {
    if (IsOk(row)) continue;
    SCOPED_TRACE(Name(row));
    ulyxContext_t context = nullptr;
    for (const int split : {ulyxSplitTruncate, ulyxSplitEqual}) {
      EXPECT_TRUE(Refused(Create(row, split, ulyxInt64, &context), ulyxInvalidArgument, {row.at("world") + " ranks"}));
      EXPECT_EQ(context, nullptr);
    }
    MUST(Create(row, ulyxSplitBalanced, ulyxInt64, &context));
    MUST(ulyxContextDestroy(context));
  }
}

}  // namespace ulyx_test
