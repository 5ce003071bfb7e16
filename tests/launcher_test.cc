// SPDX-License-Identifier: MIT
//
// Which rank of how many a perf program is, by what torchrun, mpirun (Open MPI's and others' by PMI) and srun set, and
// by its flags. The environments are what those launchers set, on machines of so many GPUs; no GPU is needed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include "launcher.h"
#include "world.h"
}

namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

const char* const kKnown[] = {"RANK",
                              "WORLD_SIZE",
                              "LOCAL_RANK",
                              "LOCAL_WORLD_SIZE",
                              "TORCHELASTIC_RUN_ID",
                              "MASTER_PORT",
                              "OMPI_COMM_WORLD_RANK",
                              "OMPI_COMM_WORLD_SIZE",
                              "OMPI_COMM_WORLD_LOCAL_RANK",
                              "OMPI_COMM_WORLD_LOCAL_SIZE",
                              "PMIX_NAMESPACE",
                              "OMPI_MCA_ess_base_jobid",
                              "PMI_RANK",
                              "PMI_SIZE",
                              "PMI_JOBID",
                              "MPI_LOCALRANKID",
                              "MPI_LOCALNRANKS",
                              "SLURM_PROCID",
                              "SLURM_NTASKS",
                              "SLURM_NPROCS",
                              "SLURM_STEP_NUM_TASKS",
                              "SLURM_LOCALID",
                              "SLURM_JOB_ID",
                              "SLURM_STEP_ID",
                              "NCCL_COMM_ID"};

// A world and what was reported on the way.
struct Found {
  bool ok;
  perfWorld_t world;
  std::string error;
};

// What every other option is when it is not given.
perfOptions_t Options() {
  perfOptions_t options;
  std::memset(&options, 0, sizeof(options));
  options.transport = PERF_UNSET;
  options.idFile = "id";
  return options;
}

Found Detect(const Variables& variables, int gpus, const perfOptions_t& options) {
  for (const char* name : kKnown) unsetenv(name);
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  Found found{};
  testing::internal::CaptureStderr();
  found.ok = perfWorldDetect(&options, gpus, &found.world);
  found.error = testing::internal::GetCapturedStderr();
  for (const char* name : kKnown) unsetenv(name);
  return found;
}

void ExpectProcess(const Variables& variables, int gpus, int rank, int nRanks, int localRank) {
  const Found found = Detect(variables, gpus, Options());
  ASSERT_TRUE(found.ok) << found.error;
  EXPECT_EQ(found.error, "");
  EXPECT_EQ(found.world.kind, perfWorldProcesses);
  EXPECT_EQ(found.world.firstRank, rank);
  EXPECT_EQ(found.world.nRanks, nRanks);
  EXPECT_EQ(found.world.localRank, localRank);
  EXPECT_EQ(found.world.nLocal, 1);
}

// All GPUs of this process, as if nobody had started it.
void ExpectAlone(const Variables& variables) {
  perfOptions_t options = Options();
  options.idFile = nullptr;
  const Found found = Detect(variables, 4, options);
  ASSERT_TRUE(found.ok) << found.error;
  EXPECT_EQ(found.world.kind, perfWorldGpus);
  EXPECT_EQ(found.world.nRanks, 4);
  EXPECT_EQ(found.world.nLocal, 4);
}

// One line, word for word.
void ExpectRefused(const Variables& variables, const std::string& error) {
  const Found found = Detect(variables, 8, Options());
  EXPECT_FALSE(found.ok);
  EXPECT_EQ(found.error, "error: " + error + "\n");
}

uint64_t JobOf(const Variables& variables) {
  const Found found = Detect(variables, 8, Options());
  EXPECT_TRUE(found.ok) << found.error;
  EXPECT_EQ(found.world.kind, perfWorldProcesses);
  return found.world.job;
}

Variables With(Variables one, const Variables& more) {
  one.insert(one.end(), more.begin(), more.end());
  return one;
}

const Variables kTorchrun = {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "6"},
                            {"OMPI_COMM_WORLD_SIZE", "7"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}};
const Variables kHydra = {{"PMI_RANK", "3"}, {"PMI_SIZE", "6"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "3"}};
const Variables kSrun = {
    {"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "5"}, {"SLURM_NTASKS", "5"}, {"SLURM_LOCALID", "1"}};

TEST(Launcher, EachSaysRankNumberAndPlaceOnItsMachine) {
  ExpectProcess(kTorchrun, 4, 5, 8, 1);
  ExpectProcess(kOpenMpi, 4, 6, 7, 2);
  ExpectProcess(kHydra, 4, 3, 6, 0);
  ExpectProcess(kSrun, 4, 2, 5, 1);
}

TEST(Launcher, FirstAndLastRank) {
  ExpectProcess({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}}, 2, 0, 2, 0);
  ExpectProcess({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}}, 2, 1, 2, 1);
}

TEST(Launcher, WithoutAnyThereIsOneProcess) {
  ExpectAlone({});
}

TEST(Launcher, EmptyVariablesAreNotSet) {
  ExpectAlone({{"RANK", ""}, {"WORLD_SIZE", ""}, {"LOCAL_RANK", ""}});
  ExpectProcess(With(kSrun, {{"RANK", ""}, {"WORLD_SIZE", ""}}), 4, 2, 5, 1);
  ExpectProcess({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", ""}}, 2, 3, 4, 1);
}

TEST(Launcher, TheInnermostCounts) {
  ExpectProcess(With(kSrun, kTorchrun), 4, 5, 8, 1);
  ExpectProcess(With(kSrun, kOpenMpi), 4, 6, 7, 2);
  ExpectProcess(With(kSrun, kHydra), 4, 3, 6, 0);
  ExpectProcess(With(kOpenMpi, kTorchrun), 4, 5, 8, 1);
  ExpectProcess(With(kHydra, kTorchrun), 4, 5, 8, 1);
}

TEST(Launcher, OneOfOneProcessIsPassedOver) {
  const Variables one = {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}};
  ExpectAlone(one);
  ExpectAlone({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_LOCALID", "0"}});
  ExpectProcess(With(one, kSrun), 4, 2, 5, 1);
}

// sbatch's script is one process of an allocation that may be for many; srun in it starts them.
TEST(Launcher, BatchScriptIsAlone) {
  ExpectAlone({{"SLURM_JOB_ID", "3"},
               {"SLURM_PROCID", "0"},
               {"SLURM_LOCALID", "0"},
               {"SLURM_NTASKS", "4"},
               {"SLURM_NPROCS", "4"}});
  ExpectAlone({{"SLURM_JOB_ID", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}});
  ExpectAlone({{"SLURM_JOB_ID", "6"}, {"SLURM_NTASKS", "4"}, {"SLURM_NPROCS", "4"}});  // salloc's shell
}

// mpiexec leaves the batch script's SLURM_NTASKS beside the variables of the step that its proxies are in.
TEST(Launcher, StepCountsAndNotTheAllocation) {
  ExpectProcess({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}},
                4, 1, 2, 0);
}

// srun --mpi=pmi2 -m cyclic, rank 2 of 4 on two machines of two GPUs: rank 0 is on the first GPU already.
TEST(Launcher, PlaceOnTheMachineFromWhoeverKnowsIt) {
  const Variables pmi2 = {{"PMI_RANK", "2"},
                          {"PMI_SIZE", "4"},
                          {"SLURM_PROCID", "2"},
                          {"SLURM_STEP_NUM_TASKS", "4"},
                          {"SLURM_LOCALID", "1"}};
  ExpectProcess(pmi2, 2, 2, 4, 1);
  // Another rank's, or one of another number, is nobody's word.
  ExpectProcess({{"RANK", "3"},
                 {"WORLD_SIZE", "4"},
                 {"SLURM_PROCID", "0"},
                 {"SLURM_STEP_NUM_TASKS", "4"},
                 {"SLURM_LOCALID", "0"}},
                4, 3, 4, 3);
  ExpectProcess({{"RANK", "3"},
                 {"WORLD_SIZE", "4"},
                 {"SLURM_PROCID", "3"},
                 {"SLURM_STEP_NUM_TASKS", "8"},
                 {"SLURM_LOCALID", "0"}},
                4, 3, 4, 3);
}

TEST(Launcher, WithoutAPlaceMachinesAreFilledOneAfterAnother) {
  ExpectProcess({{"RANK", "5"}, {"WORLD_SIZE", "8"}}, 4, 5, 8, 1);
  ExpectProcess({{"PMI_RANK", "4"}, {"PMI_SIZE", "8"}}, 4, 4, 8, 0);
  ExpectProcess({{"PMI_RANK", "4"}, {"PMI_SIZE", "8"}}, 1, 4, 8, 0);
}

TEST(Launcher, NonsenseIsRefusedByNameAndValue) {
  const std::string names[][3] = {{"RANK", "WORLD_SIZE", "LOCAL_RANK"},
                                  {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
                                  {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
                                  {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}};
  const std::pair<std::string, std::string> bad[] = {{"2", "2"},   {"-1", "2"},  {"one", "2"},        {"0", "two"},
                                                     {"0", "0"},   {"0", "-2"},  {"0", "2147483648"}, {"1", "1"},
                                                     {"0x0", "2"}, {"1.0", "2"}, {" 0", "2"},         {"0", "2 "}};
  for (const auto& of : names) {
    for (const auto& [rank, nRanks] : bad) {
      ExpectRefused({{of[0], rank}, {of[1], nRanks}, {of[2], "0"}},
                    of[0] + "=" + rank + " and " + of[1] + "=" + nRanks +
                        " are no rank and number of ranks: unset them, or give --ranks");
    }
    for (const std::string local : {"first", "-1", "2"}) {
      ExpectRefused({{of[0], "1"}, {of[1], "2"}, {of[2], local}},
                    of[2] + "=" + local + " is no rank on this machine of 2 ranks: unset it, or give --ranks");
    }
  }
}

TEST(Launcher, ContradictionsOnTheMachineAreRefused) {
  const std::string names[][4] = {
      {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}};
  for (const auto& of : names) {
    for (const std::string nLocal : {"1", "0", "5", "many"}) {  // of 4 ranks this is the second here
      ExpectRefused({{of[0], "1"}, {of[1], "4"}, {of[2], "1"}, {of[3], nLocal}},
                    of[2] + "=1 and " + of[3] + "=" + nLocal +
                        " are no rank on this machine and number of them: unset them, or give --ranks");
    }
  }
}

TEST(Launcher, HalfIsRefusedByNameAndValue) {
  const std::string names[][2] = {
      {"RANK", "WORLD_SIZE"}, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}};
  for (const auto& of : names) {
    ExpectRefused({{of[0], "1"}}, of[0] + "=1 is set, but " + of[1] + " is not: set both or neither, or give --ranks");
    ExpectRefused({{of[1], "2"}}, of[1] + "=2 is set, but " + of[0] + " is not: set both or neither, or give --ranks");
  }
  ExpectRefused({{"SLURM_STEP_NUM_TASKS", "2"}},
                "SLURM_STEP_NUM_TASKS=2 is set, but SLURM_PROCID is not: set both or neither, or give --ranks");
}

// Scripts export WORLD_SIZE for programs that take their rank from srun.
TEST(Launcher, HalfBesideAWholeOneIsPassedOver) {
  ExpectProcess(With(kSrun, {{"WORLD_SIZE", "5"}}), 4, 2, 5, 1);
}

TEST(Launcher, RanksOnTheCpuNeedNone) {
  perfOptions_t options = Options();
  options.idFile = nullptr;
  options.ranks = 3;
  const Found found = Detect({{"RANK", "one"}, {"WORLD_SIZE", "2"}, {"PMI_RANK", "1"}}, 8, options);
  ASSERT_TRUE(found.ok) << found.error;
  EXPECT_EQ(found.world.kind, perfWorldCpu);
  EXPECT_EQ(found.world.nRanks, 3);
}

TEST(Launcher, NoGpuIsRefusedByWhoSeesNone) {
  const std::pair<Variables, std::string> all[] = {
      {kTorchrun, "torchrun started 8 processes, which need a GPU each, but rank 5 (local rank 1) sees none"},
      {kOpenMpi, "mpirun started 7 processes, which need a GPU each, but rank 6 (local rank 2) sees none"},
      {kHydra, "PMI started 6 processes, which need a GPU each, but rank 3 (local rank 0) sees none"},
      {kSrun, "srun started 5 processes, which need a GPU each, but rank 2 (local rank 1) sees none"}};
  for (const auto& [variables, error] : all) {
    const Found found = Detect(variables, 0, Options());
    EXPECT_FALSE(found.ok);
    EXPECT_EQ(found.error, "error: " + error + "\n");
  }
}

TEST(Meeting, ProcessesNeedAFileOrAnAddress) {
  perfOptions_t options = Options();
  options.idFile = nullptr;
  const std::string none = "error: ranks that are processes meet through --id-file PATH or NCCL_COMM_ID=host:port\n";
  EXPECT_EQ(Detect(kSrun, 4, options).error, none);
  EXPECT_EQ(Detect(With(kSrun, {{"NCCL_COMM_ID", ""}}), 4, options).error, none);
  for (const std::string good : {"10.0.0.1:29500", "host:1", "[fe80::1]:65535"}) {
    EXPECT_TRUE(Detect(With(kSrun, {{"NCCL_COMM_ID", good}}), 4, options).ok) << good;
  }
  for (const std::string bad : {"host", ":29500", "host:", "host:port", "host:0", "host:65536", "host:1x"}) {
    const Found found = Detect(With(kSrun, {{"NCCL_COMM_ID", bad}}), 4, options);
    EXPECT_FALSE(found.ok) << bad;
    EXPECT_EQ(found.error, "error: NCCL_COMM_ID=" + bad + " is no host:port\n");
  }
  options.idFile = "id";  // a file goes first, and nobody reads the variable
  EXPECT_TRUE(Detect(With(kSrun, {{"NCCL_COMM_ID", "host"}}), 4, options).ok);
}

TEST(Meeting, AFileIsForProcesses) {
  EXPECT_EQ(Detect({}, 4, Options()).error, "error: --id-file is for ranks that are processes\n");
}

// The file with the unique id is taken by ranks of one job only.
TEST(Job, IsTheSameOnItsRanksAndNotInTheNext) {
  const Variables srun = With(kSrun, {{"SLURM_JOB_ID", "9"}, {"SLURM_STEP_ID", "0"}});
  Variables otherRank = srun;
  otherRank[0].second = "3";
  EXPECT_EQ(JobOf(srun), JobOf(otherRank));
  EXPECT_NE(JobOf(srun), JobOf(With(kSrun, {{"SLURM_JOB_ID", "9"}, {"SLURM_STEP_ID", "1"}})));
  EXPECT_NE(JobOf(srun), JobOf(With(kSrun, {{"SLURM_JOB_ID", "10"}, {"SLURM_STEP_ID", "0"}})));
  EXPECT_NE(JobOf(With(kTorchrun, {{"MASTER_PORT", "1"}})), JobOf(With(kTorchrun, {{"MASTER_PORT", "2"}})));
  EXPECT_NE(JobOf(With(kTorchrun, {{"TORCHELASTIC_RUN_ID", "a"}})),
            JobOf(With(kTorchrun, {{"TORCHELASTIC_RUN_ID", "b"}})));
  EXPECT_NE(JobOf(With(kOpenMpi, {{"PMIX_NAMESPACE", "1"}})), JobOf(With(kOpenMpi, {{"PMIX_NAMESPACE", "2"}})));
  EXPECT_NE(JobOf(With(kHydra, {{"PMI_JOBID", "2.0"}})), JobOf(With(kHydra, {{"PMI_JOBID", "2.1"}})));
}

// mpirun starts its own machine's ranks itself and the others' through a step of srun's.
TEST(Job, OfMpirunIsNotSlurmsStep) {
  const Variables here = With(kOpenMpi, {{"PMIX_NAMESPACE", "7"}, {"SLURM_JOB_ID", "9"}});
  EXPECT_EQ(JobOf(here), JobOf(With(here, {{"SLURM_STEP_ID", "0"}})));
}

// -t N -g G: N x G GPUs of this process, a rank each.
TEST(Threads, TimesGpusAreRanks) {
  const struct {
    int threads, gpus, ranks;
  } given[] = {{2, 3, 6}, {3, 2, 6}, {4, 0, 4}, {0, 4, 4}, {1, 1, 1}, {8, 8, 64}, {64, 0, 64}, {1, 64, 64}};
  for (const auto& one : given) {
    perfOptions_t options = Options();
    options.idFile = nullptr;
    options.threads = one.threads;
    options.gpus = one.gpus;
    const Found found = Detect({}, 64, options);
    ASSERT_TRUE(found.ok) << found.error;
    EXPECT_EQ(found.world.kind, perfWorldGpus);
    EXPECT_EQ(found.world.nRanks, one.ranks);
    EXPECT_EQ(found.world.nLocal, one.ranks);
    const Found fewer = Detect({}, one.ranks - 1, options);
    EXPECT_EQ(fewer.error, "error: " + std::to_string(one.ranks) + " GPUs were asked for, but there are " +
                               std::to_string(one.ranks - 1) + "\n");
  }
}

TEST(Threads, AProcessDrivesSoMany) {
  perfOptions_t options = Options();
  options.idFile = nullptr;
  options.threads = 64;
  options.gpus = 64;
  EXPECT_EQ(Detect({}, 4096, options).error, "error: a process drives 64 GPUs at most, not 4096\n");
}

TEST(Threads, ProcessesOfALauncherDriveOneGpuEach) {
  for (const auto& [threads, gpus] : {std::pair(2, 0), std::pair(0, 2), std::pair(2, 2)}) {
    perfOptions_t options = Options();
    options.threads = threads;
    options.gpus = gpus;
    EXPECT_EQ(Detect(kSrun, 8, options).error,
              "error: srun started 5 processes, and each drives one GPU: drop -g and -t\n");
  }
  perfOptions_t one = Options();
  one.threads = 1;
  one.gpus = 1;
  EXPECT_TRUE(Detect(kSrun, 8, one).ok);
}

}  // namespace
