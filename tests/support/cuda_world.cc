// SPDX-License-Identifier: MIT
//
// Ranks on CUDA devices: real ones, one a rank (nccl); real ones, all on device 0 (onegpu); simulated ones (sim).
#include <cuda_runtime_api.h>

#include <algorithm>
#include <stdexcept>

#include "support/world.h"

namespace ulyx_test {

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

#if defined(ULYX_TEST_WORLD_SIM)
constexpr bool kRealGpus = false;
constexpr char kName[] = "sim";
constexpr int kCtas = 0;
constexpr bool kSharedDevice = false;
constexpr int kMostRanks = 16;
#elif defined(ULYX_TEST_WORLD_ONEGPU)
constexpr bool kRealGpus = true;
constexpr char kName[] = "onegpu";
constexpr int kCtas = 32;  // of eight ranks that wait for each other on one GPU
constexpr bool kSharedDevice = true;
constexpr int kMostRanks = 8;
#else
constexpr bool kRealGpus = true;
constexpr char kName[] = "";
constexpr int kCtas = 0;
constexpr bool kSharedDevice = false;
constexpr int kMostRanks = 16;
#endif

void Cuda(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

class CudaRanks : public World {
 public:
  explicit CudaRanks(int transport) : transport_(transport) {
    const char* const name = transport == ulyxTransportNccl     ? "nccl"
                             : transport == ulyxTransportDirect ? "direct"
                                                                : "copy_engine";
    const bool plain = transport == ulyxTransportNccl && kName[0] != '\0';
    name_ = plain ? kName : kName[0] != '\0' ? std::string(kName) + "_" + name : name;
    if (kRealGpus && kSanitized) {
      missing_ = "CUDA's driver does not work under sanitizers";
      return;
    }
    const cudaError_t error = cudaGetDeviceCount(&devices_);
    if (error != cudaSuccess) devices_ = 0;
    missing_ = error != cudaSuccess ? std::string("no GPU (") + cudaGetErrorString(error) + ")"
                                    : std::to_string(devices_) + " GPUs";
  }

  bool KeepsOneSession() const override { return kSharedDevice; }
  bool HasRealGpus() const override { return kRealGpus; }
  int64_t FreeBytes(int rank) const override {
    size_t freeBytes = 0, allBytes = 0;
    Use(rank);
    Cuda(cudaMemGetInfo(&freeBytes, &allBytes));
    return int64_t(freeBytes);
  }
  const char* Name() const override { return name_.c_str(); }
  int Transport() const override { return transport_; }
  void Complete(ulyxConfig_t* config) const override {
    if (config->transport == ULYX_UNDEF_INT) config->transport = transport_;
    if (config->maxCtas == ULYX_UNDEF_INT && kCtas > 0) config->maxCtas = kCtas;
    if (config->timeoutMs == ULYX_UNDEF_INT) config->timeoutMs = 20000;  // before the watchdog
  }
  int MaxRanks() const override { return kSharedDevice && devices_ > 0 ? kMostRanks : std::min(devices_, kMostRanks); }
  std::string Missing() const override { return missing_; }
  std::vector<int> Devices(int nRanks) const override {
    std::vector<int> devices;
    for (int rank = 0; rank < nRanks; rank++) devices.push_back(Device(rank));
    return devices;
  }

  void Use(int rank) const override { Cuda(cudaSetDevice(Device(rank))); }
  int Current() const override {
    int device = -1;
    Cuda(cudaGetDevice(&device));
    return device;
  }

  void* Alloc(int rank, size_t bytes) const override {
    Use(rank);
    void* memory = nullptr;
    Cuda(cudaMalloc(&memory, bytes));
    return memory;
  }
  void Free(int rank, void* memory) const override {
    Use(rank);
    Cuda(cudaFree(memory));
  }
  void Upload(int rank, void* memory, const void* host, size_t bytes) const override {
    Use(rank);
    Cuda(cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice));
    Cuda(cudaStreamSynchronize(nullptr));  // the copy may have been staged only; the test's streams do not wait for it
  }
  void Download(int rank, void* host, const void* memory, size_t bytes) const override {
    Use(rank);
    Cuda(cudaMemcpy(host, memory, bytes, cudaMemcpyDeviceToHost));
  }

  ulyxStream_t NewStream(int rank) const override {
    Use(rank);
    cudaStream_t stream = nullptr;
    Cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
  }
  void Synchronize(int rank, ulyxStream_t stream) const override {
    Use(rank);
    Cuda(cudaStreamSynchronize(stream));
  }
  void FreeStream(int rank, ulyxStream_t stream) const override {
    Use(rank);
    Cuda(cudaStreamDestroy(stream));
  }

 private:
  static int Device(int rank) { return kSharedDevice ? 0 : rank; }

  const int transport_;
  std::string name_;
  int devices_ = 0;
  std::string missing_;
};

}  // namespace

const World* CudaWorld(int transport);

const World* CudaWorld(int transport) {
  static const CudaRanks nccl(ulyxTransportNccl), direct(ulyxTransportDirect), copyEngine(ulyxTransportCopyEngine);
  return transport == ulyxTransportNccl ? &nccl : transport == ulyxTransportDirect ? &direct : &copyEngine;
}

}  // namespace ulyx_test
