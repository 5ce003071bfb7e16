// SPDX-License-Identifier: MIT

/// @file
/// ulyx from C++17: owners of what ulyx.h makes, views of tensors, errors as exceptions. Header only; ulyx.h is the
/// contract and says what every call does.
///
///     ulyx::Shape shape;
///     shape.tokens = 75601; shape.heads = 41; shape.headDim = 128;
///     ulyx::Plan plan = rt.plan(shape);
///     auto [in, out] = plan.qkv();                        // tensors complete but for data
///     ulyx::Memory<__half> q = rt.alloc<__half>(ulyx::span(out.q));
///     plan.seqToHeads(in, out, stream);                   // ulyxStream_t is cudaStream_t
///
/// **Owners** are one pointer, move only, and give back what they hold when they go. Every handle from a runtime, plans
/// and memory, goes before the runtime does: declare it after. Members and locals then go in the right order by
/// themselves, also where they are assigned, since a move assignment swaps: what an owner held goes with the source. As
/// in C, destroying a runtime or its memory is collective on GPUs. A destructor has nobody to tell of a refusal;
/// reset() returns it.
///
/// **Errors** are thrown as ulyx::Error. Where exceptions are off, or with ULYX_HPP_NO_EXCEPTIONS, nothing that throws
/// is declared. The C functions take its place there, and beside it wherever a caller prefers results: get() is the
/// handle, put() is where a new one is written.
///
///     ulyx::Plan plan;
///     if (ulyxPlanCreate(rt.get(), &shape, plan.put()) != ulyxSuccess) return fallBack(ulyxGetLastError(nullptr));
#ifndef ULYX_HPP_
#define ULYX_HPP_

#include <array>
#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>

#include "ulyx.h"

#if !defined(__cpp_exceptions) && !defined(ULYX_HPP_NO_EXCEPTIONS)
#define ULYX_HPP_NO_EXCEPTIONS
#endif
#ifndef ULYX_HPP_NO_EXCEPTIONS
#include <stdexcept>
#include <string>
#include <vector>
#endif

namespace ulyx {

// ---- Structs that a caller fills, started from their initializers ------------------------------------------------

struct Config : ulyxConfig_t {
  Config() noexcept : ulyxConfig_t ULYX_CONFIG_INITIALIZER {}
};
struct Shape : ulyxShape_t {
  Shape() noexcept : ulyxShape_t ULYX_SHAPE_INITIALIZER {}
};
struct RowsShape : ulyxRowsShape_t {
  RowsShape() noexcept : ulyxRowsShape_t ULYX_ROWS_SHAPE_INITIALIZER {}
};
struct HaloShape : ulyxHaloShape_t {
  HaloShape() noexcept : ulyxHaloShape_t ULYX_HALO_SHAPE_INITIALIZER {}
};
struct StateShape : ulyxStateShape_t {
  StateShape() noexcept : ulyxStateShape_t ULYX_STATE_SHAPE_INITIALIZER {}
};

constexpr int64_t length(const ulyxRange_t& range) noexcept {
  return range.stop - range.start;
}

// ---- Element types -----------------------------------------------------------------------------------------------

/// The ulyxDataType_t of a C++ type. Specialise it for a toolkit's own:
///
///     template <> struct ulyx::DataType<__half> { static constexpr ulyxDataType_t value = ulyxFloat16; };
template <class T>
struct DataType {
  static_assert(!std::is_same_v<T, T>, "specialise ulyx::DataType for this type");
};
// clang-format off
template <> struct DataType<int8_t> { static constexpr ulyxDataType_t value = ulyxInt8; };
template <> struct DataType<uint8_t> { static constexpr ulyxDataType_t value = ulyxUint8; };
template <> struct DataType<int16_t> { static constexpr ulyxDataType_t value = ulyxInt16; };
template <> struct DataType<uint16_t> { static constexpr ulyxDataType_t value = ulyxUint16; };
template <> struct DataType<int32_t> { static constexpr ulyxDataType_t value = ulyxInt32; };
template <> struct DataType<uint32_t> { static constexpr ulyxDataType_t value = ulyxUint32; };
template <> struct DataType<int64_t> { static constexpr ulyxDataType_t value = ulyxInt64; };
template <> struct DataType<uint64_t> { static constexpr ulyxDataType_t value = ulyxUint64; };
template <> struct DataType<float> { static constexpr ulyxDataType_t value = ulyxFloat32; };
template <> struct DataType<double> { static constexpr ulyxDataType_t value = ulyxFloat64; };
template <> struct DataType<bool> { static constexpr ulyxDataType_t value = ulyxBool; };
// clang-format on

template <class T>
inline constexpr ulyxDataType_t dataType = DataType<std::remove_cv_t<T>>::value;

// ---- Tensors -----------------------------------------------------------------------------------------------------

/// Elements from a tensor's first to the end of its last, gaps included: what to allocate for it.
constexpr int64_t span(const ulyxTensor_t& tensor) noexcept {
  int64_t last = 0;
  for (int i = 0; i < 4; ++i) {
    if (tensor.extents[i] == 0) return 0;
    last += (tensor.extents[i] - 1) * tensor.strides[i];
  }
  return last + 1;
}

/// A view of somebody's memory by [batch, token, head, dim], whatever its order there; strides in elements. Becomes a
/// ulyxTensor_t by itself wherever one is expected.
template <class T>
class Tensor {
 public:
  using Four = std::array<int64_t, 4>;

  constexpr Tensor() noexcept = default;
  constexpr Tensor(T* data, const Four& extents, const Four& strides) noexcept
      : data_(data), extents_(extents), strides_(strides) {}
  /// Dense.
  constexpr Tensor(T* data, const Four& extents) noexcept
      : Tensor(data, extents,
               {extents[1] * extents[2] * extents[3], extents[2] * extents[3], extents[3], extents[3] > 0 ? 1 : 0}) {}
  /// A plan's tensor, over memory for it.
  Tensor(const ulyxTensor_t& tensor, T* data) noexcept
      : Tensor(data, {tensor.extents[0], tensor.extents[1], tensor.extents[2], tensor.extents[3]},
               {tensor.strides[0], tensor.strides[1], tensor.strides[2], tensor.strides[3]}) {
    assert(tensor.type == dataType<T> && "the tensor's elements are of another type");
  }
  /// A tensor whose data is set.
  explicit Tensor(const ulyxTensor_t& tensor) noexcept : Tensor(tensor, static_cast<T*>(tensor.data)) {}

  constexpr T& operator()(int64_t batch, int64_t token, int64_t head, int64_t dim) const noexcept {
    return data_[batch * strides_[0] + token * strides_[1] + head * strides_[2] + dim * strides_[3]];
  }
  constexpr T* data() const noexcept { return data_; }
  constexpr const Four& extents() const noexcept { return extents_; }
  constexpr const Four& strides() const noexcept { return strides_; }
  constexpr int64_t elements() const noexcept { return extents_[0] * extents_[1] * extents_[2] * extents_[3]; }

  operator Tensor<const T>() const noexcept { return {data_, extents_, strides_}; }
  operator ulyxTensor_t() const noexcept {
    ulyxTensor_t tensor = ULYX_TENSOR_INITIALIZER;
    tensor.data = const_cast<std::remove_const_t<T>*>(data_);  // inputs are not written
    for (int i = 0; i < 4; ++i) {
      tensor.extents[i] = extents_[static_cast<size_t>(i)];
      tensor.strides[i] = strides_[static_cast<size_t>(i)];
    }
    tensor.type = dataType<T>;
    tensor.elementBytes = int{sizeof(T)};
    return tensor;
  }

 private:
  T* data_ = nullptr;
  Four extents_{};
  Four strides_{};
};

/// Q, K and V from three tensors, or from the one of a packed side.
struct Qkv : ulyxQkv_t {
  explicit Qkv(const ulyxTensor_t& packed) noexcept : ulyxQkv_t ULYX_QKV_INITIALIZER { q = packed; }
  Qkv(const ulyxTensor_t& q_, const ulyxTensor_t& k_, const ulyxTensor_t& v_) noexcept : ulyxQkv_t{q_, k_, v_} {}
};

template <class T>
struct InOut {
  T in, out;
};

struct HaloTensors {
  ulyxTensor_t local, halo;
};

// ---- Errors ------------------------------------------------------------------------------------------------------

#ifndef ULYX_HPP_NO_EXCEPTIONS
/// A refused call: what() is the result in words and what was wrong, with both numbers.
class Error : public std::runtime_error {
 public:
  /// In the words of the calling thread's last refused call.
  explicit Error(ulyxResult_t code)
      : std::runtime_error(std::string(ulyxGetErrorString(code)) + ": " + ulyxGetLastError(nullptr)), code_(code) {}
  ulyxResult_t code() const noexcept { return code_; }

 private:
  ulyxResult_t code_;
};

/// Makes an exception of what a C function returned on this thread.
inline void check(ulyxResult_t result) {
  if (result != ulyxSuccess) throw Error(result);
}
#endif

// ---- Owners ------------------------------------------------------------------------------------------------------

namespace detail {

// Each leaves the handle where it was refused.
template <class Handle>
ulyxResult_t forget(Handle& handle, ulyxResult_t destroyed) noexcept {
  if (destroyed == ulyxSuccess) handle = nullptr;
  return destroyed;
}
inline ulyxResult_t destroy(ulyxRuntime_t& rt) noexcept {
  return ulyxRuntimeDestroy(&rt);
}
inline ulyxResult_t destroy(ulyxPlan_t& plan) noexcept {
  return forget(plan, ulyxPlanDestroy(plan));
}
inline ulyxResult_t destroy(ulyxSequences_t& sequences) noexcept {
  return forget(sequences, ulyxSequencesDestroy(sequences));
}
inline ulyxResult_t destroy(ulyxContext_t& context) noexcept {
  return forget(context, ulyxContextDestroy(context));
}
inline ulyxResult_t destroy(ulyxContextCache_t& cache) noexcept {
  return forget(cache, ulyxContextCacheDestroy(cache));
}

/// What all owners can do.
template <class Handle>
class Owner {
 public:
  Owner() noexcept = default;
  /// Takes a handle over.
  explicit Owner(Handle handle) noexcept : handle_(handle) {}
  Owner(Owner&& other) noexcept : handle_(other.release()) {}
  Owner& operator=(Owner&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  explicit operator bool() const noexcept { return handle_ != nullptr; }
  Handle get() const noexcept { return handle_; }
  /// Hands the handle over to the caller.
  [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, nullptr); }
  /// Destroys what is held, if anything. Where that is refused (a second thread in a runtime,
  /// captured graphs that hold its exchanges), it stays held.
  ulyxResult_t reset() noexcept { return destroy(handle_); }
  /// Where a C function writes a new handle. Destroys the old one.
  [[nodiscard]] Handle* put() noexcept {
    (void)reset();
    return &handle_;
  }

 protected:
  ~Owner() { (void)reset(); }

 private:
  Handle handle_ = nullptr;
};

}  // namespace detail

/// Memory from ulyxMemAlloc for `size()` elements; of the device on GPUs. Goes before its runtime.
template <class T>
class Memory {
  static_assert(std::is_trivially_copyable_v<T>, "bytes are all that the wire knows");

 public:
  Memory() noexcept = default;
  /// Takes over `data`, which ulyxMemAlloc of `rt` gave.
  Memory(ulyxRuntime_t rt, T* data, int64_t size) noexcept : rt_(rt), data_(data), size_(size) {}
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    std::swap(rt_, other.rt_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Memory() { (void)reset(); }

  explicit operator bool() const noexcept { return data_ != nullptr; }
  T* data() const noexcept { return data_; }
  int64_t size() const noexcept { return size_; }
  /// Hands the memory over to the caller.
  [[nodiscard]] T* release() noexcept {
    rt_ = nullptr;
    size_ = 0;
    return std::exchange(data_, nullptr);
  }
  /// As an owner's.
  ulyxResult_t reset() noexcept {
    if (data_ == nullptr) return ulyxSuccess;
    const ulyxResult_t freed = ulyxMemFree(rt_, data_);
    if (freed == ulyxSuccess) (void)release();
    return freed;
  }

 private:
  ulyxRuntime_t rt_ = nullptr;
  T* data_ = nullptr;
  int64_t size_ = 0;
};

/// Where sequences begin in one run of tokens. A plan or context made from it does not need it any longer.
class Sequences : public detail::Owner<ulyxSequences_t> {
 public:
  using Owner::Owner;
#ifndef ULYX_HPP_NO_EXCEPTIONS
  /// From a vector, array or the like of int32_t or int64_t.
  template <class CuSeqlens>
  static Sequences create(const CuSeqlens& cuSeqlens) {
    Sequences sequences;
    const auto* const data = std::data(cuSeqlens);
    check(ulyxSequencesCreate(data, static_cast<int64_t>(std::size(cuSeqlens)),
                              dataType<std::remove_pointer_t<decltype(std::data(cuSeqlens))>>, sequences.put()));
    return sequences;
  }
  static Sequences create(std::initializer_list<int64_t> cuSeqlens) {
    return create<std::initializer_list<int64_t>>(cuSeqlens);
  }
#endif
};

/// What one rank knows of sequences that span ranks.
class Context : public detail::Owner<ulyxContext_t> {
 public:
  using Owner::Owner;
#ifndef ULYX_HPP_NO_EXCEPTIONS
  static Context create(const Sequences& sequences, int nRanks, int rank, ulyxSplit_t split, int convKernel = 0) {
    Context context;
    check(ulyxContextCreate(sequences.get(), nRanks, rank, split, convKernel, context.put()));
    return context;
  }
  Context copy() const {
    Context context;
    check(ulyxContextCopy(get(), context.put()));
    return context;
  }
  ulyxContextInfo_t info() const {
    ulyxContextInfo_t info = ULYX_CONTEXT_INFO_INITIALIZER;
    check(ulyxContextGetInfo(get(), &info));
    return info;
  }
#endif
};

/// Contexts used last, found again by their contents. A runtime has one of its own.
class ContextCache : public detail::Owner<ulyxContextCache_t> {
 public:
  using Owner::Owner;
#ifndef ULYX_HPP_NO_EXCEPTIONS
  static ContextCache create(int capacity = 0) {
    ContextCache cache;
    check(ulyxContextCacheCreate(capacity, cache.put()));
    return cache;
  }
  template <class CuSeqlens>
  Context context(const CuSeqlens& cuSeqlens, int nRanks, int rank, ulyxSplit_t split, int convKernel = 0) const {
    Context context;
    const auto* const data = std::data(cuSeqlens);
    check(ulyxContextCacheGet(get(), data, static_cast<int64_t>(std::size(cuSeqlens)),
                              dataType<std::remove_pointer_t<decltype(std::data(cuSeqlens))>>, nRanks, rank, split,
                              convKernel, context.put()));
    return context;
  }
#endif
};

/// Both exchanges of a shape. Plans are of four kinds here, so that the compiler refuses what the C library would.
class Plan : public detail::Owner<ulyxPlan_t> {
 public:
  using Owner::Owner;
#ifndef ULYX_HPP_NO_EXCEPTIONS
  /// Its pointers live as long as the plan.
  ulyxPlanInfo_t info() const {
    ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
    check(ulyxPlanGetInfo(get(), &info));
    return info;
  }
  ulyxChoice_t choice(ulyxOp_t op) const {
    ulyxChoice_t choice{};
    check(ulyxPlanGetChoice(get(), op, &choice));
    return choice;
  }
  /// The tensors that seqToHeads() expects, complete but for data.
  InOut<ulyxQkv_t> qkv() const {
    InOut<ulyxQkv_t> tensors{};
    check(ulyxPlanGetQkv(get(), &tensors.in, &tensors.out));
    return tensors;
  }
  /// The tensors that headsToSeq() expects, complete but for data.
  InOut<ulyxTensor_t> output() const {
    InOut<ulyxTensor_t> tensors{};
    check(ulyxPlanGetOutput(get(), &tensors.in, &tensors.out));
    return tensors;
  }
  void storeCuSeqlens(int32_t* cuSeqlens, ulyxStream_t stream = nullptr) const {
    check(ulyxPlanStoreCuSeqlens(get(), cuSeqlens, stream));
  }
  void seqToHeads(const ulyxQkv_t& in, const ulyxQkv_t& out, ulyxStream_t stream = nullptr) const {
    check(ulyxSeqToHeads(get(), &in, &out, stream));
  }
  void headsToSeq(const ulyxTensor_t& in, const ulyxTensor_t& out, ulyxStream_t stream = nullptr) const {
    check(ulyxHeadsToSeq(get(), &in, &out, stream));
  }
#endif
};

/// One row collective, that of its RowsShape::op.
class RowsPlan : public detail::Owner<ulyxPlan_t> {
 public:
  using Owner::Owner;
#ifndef ULYX_HPP_NO_EXCEPTIONS
  InOut<ulyxTensor_t> rows() const {
    InOut<ulyxTensor_t> tensors{};
    check(ulyxPlanGetRows(get(), &tensors.in, &tensors.out));
    return tensors;
  }
  ulyxChoice_t choice() const {
    ulyxChoice_t choice{};
    check(ulyxPlanGetChoice(get(), 0, &choice));
    return choice;
  }
  void allGather(const ulyxTensor_t& in, const ulyxTensor_t& out, ulyxStream_t stream = nullptr) const {
    check(ulyxAllGatherRows(get(), &in, &out, stream));
  }
  void reduceScatter(const ulyxTensor_t& in, const ulyxTensor_t& out, ulyxStream_t stream = nullptr) const {
    check(ulyxReduceScatterRows(get(), &in, &out, stream));
  }
  void allToAll(const ulyxTensor_t& in, const ulyxTensor_t& out, ulyxStream_t stream = nullptr) const {
    check(ulyxAllToAllRows(get(), &in, &out, stream));
  }
#endif
};

/// A causal convolution's halo and its gradients.
class HaloPlan : public detail::Owner<ulyxPlan_t> {
 public:
  using Owner::Owner;
#ifndef ULYX_HPP_NO_EXCEPTIONS
  HaloTensors tensors() const {
    HaloTensors tensors{};
    check(ulyxPlanGetHalo(get(), &tensors.local, &tensors.halo));
    return tensors;
  }
  void convHalo(const ulyxTensor_t& local, const ulyxTensor_t& halo, ulyxStream_t stream = nullptr) const {
    check(ulyxConvHalo(get(), &local, &halo, stream));
  }
  void convHaloBackward(const ulyxTensor_t& halo, const ulyxTensor_t& local, ulyxStream_t stream = nullptr) const {
    check(ulyxConvHaloBackward(get(), &halo, &local, stream));
  }
#endif
};

/// The chain of a linear attention's states and its mirror image.
class StatePlan : public detail::Owner<ulyxPlan_t> {
 public:
  using Owner::Owner;
#ifndef ULYX_HPP_NO_EXCEPTIONS
  ulyxStates_t states() const {
    ulyxStates_t states{};
    check(ulyxPlanGetStates(get(), &states));
    return states;
  }
  void stateChain(const ulyxStates_t& states, ulyxStream_t stream = nullptr) const {
    check(ulyxStateChain(get(), &states, stream));
  }
  void stateChainBackward(const ulyxStates_t& states, ulyxStream_t stream = nullptr) const {
    check(ulyxStateChainBackward(get(), &states, stream));
  }
#endif
};

/// One rank of a world, driven by one thread at a time. Goes after its plans and memory.
class Runtime : public detail::Owner<ulyxRuntime_t> {
 public:
  using Owner::Owner;
  /// What the last refused call on this runtime said, an asynchronous error included.
  const char* lastError() const noexcept { return ulyxGetLastError(get()); }
#ifndef ULYX_HPP_NO_EXCEPTIONS
  static Runtime create(int nRanks, const ulyxUniqueId_t& id, int rank, const ulyxConfig_t& config = Config()) {
    Runtime rt;
    check(ulyxRuntimeCreate(&config, nRanks, id, rank, rt.put()));
    return rt;
  }
  static Runtime fromComm(ncclComm* comm, const ulyxConfig_t& config = Config()) {
    Runtime rt;
    check(ulyxRuntimeCreateFromComm(&config, comm, rt.put()));
    return rt;
  }
  /// All ranks in this process, as threads on the CPU.
  static std::vector<Runtime> local(int nRanks, const ulyxConfig_t& config = Config()) {
    return createLocal(nRanks, nullptr, config);
  }
  /// All ranks in this process, each on a device of its own.
  static std::vector<Runtime> onDevices(const std::vector<int>& devices, const ulyxConfig_t& config = Config()) {
    return createLocal(static_cast<int>(devices.size()), devices.data(), config);
  }

  ulyxRuntimeInfo_t info() const {
    ulyxRuntimeInfo_t info = ULYX_RUNTIME_INFO_INITIALIZER;
    check(ulyxRuntimeGetInfo(get(), &info));
    return info;
  }
  void reserve(int64_t arenaBytes) const {
    check(ulyxRuntimeReserve(get(), arenaBytes));
  }
  /// What a device found; lastError() has the words. Throws only where the question itself is refused.
  ulyxResult_t asyncError() const {
    ulyxResult_t error = ulyxSuccess;
    check(ulyxRuntimeGetAsyncError(get(), &error));
    return error;
  }
  /// From any thread.
  void abort() const {
    check(ulyxRuntimeAbort(get()));
  }
  /// Who hears of errors and of the exchanges before them; NULL: nobody.
  void setLogger(ulyxLogger_t logger, void* user = nullptr) const {
    check(ulyxRuntimeSetLogger(get(), logger, user));
  }
  void logRecord() const {
    check(ulyxRuntimeLogRecord(get()));
  }
  void close() const {
    check(ulyxRuntimeClose(get()));
  }

  /// Memory for `size` elements that the wire reads and writes by itself. Collective.
  template <class T>
  Memory<T> alloc(int64_t size) const {
    constexpr int64_t most = std::numeric_limits<int64_t>::max();
    constexpr int64_t each = int64_t{sizeof(T)};
    void* data = nullptr;
    check(ulyxMemAlloc(get(), size > most / each ? most : size * each, &data));
    return Memory<T>(get(), static_cast<T*>(data), size);
  }
  Plan plan(const ulyxShape_t& shape) const {
    Plan plan;
    check(ulyxPlanCreate(get(), &shape, plan.put()));
    return plan;
  }
  RowsPlan rowsPlan(const ulyxRowsShape_t& shape) const {
    RowsPlan plan;
    check(ulyxRowsPlanCreate(get(), &shape, plan.put()));
    return plan;
  }
  HaloPlan haloPlan(const ulyxHaloShape_t& shape) const {
    HaloPlan plan;
    check(ulyxHaloPlanCreate(get(), &shape, plan.put()));
    return plan;
  }
  StatePlan statePlan(const ulyxStateShape_t& shape) const {
    StatePlan plan;
    check(ulyxStatePlanCreate(get(), &shape, plan.put()));
    return plan;
  }
  /// This rank's context, from the runtime's cache.
  template <class CuSeqlens>
  Context context(const CuSeqlens& cuSeqlens, ulyxSplit_t split, int convKernel = 0) const {
    Context context;
    const auto* const data = std::data(cuSeqlens);
    check(ulyxRuntimeGetContext(get(), data, static_cast<int64_t>(std::size(cuSeqlens)),
                                dataType<std::remove_pointer_t<decltype(std::data(cuSeqlens))>>, split, convKernel,
                                context.put()));
    return context;
  }
  void storeCuSeqlens(const Context& context, int32_t* data, ulyxStream_t stream = nullptr) const {
    check(ulyxContextStoreCuSeqlens(get(), context.get(), data, stream));
  }

 private:
  static std::vector<Runtime> createLocal(int nRanks, const int* devices, const ulyxConfig_t& config) {
    std::vector<ulyxRuntime_t> handles(static_cast<size_t>(nRanks > 0 && nRanks <= ULYX_LOCAL_MAX_RANKS ? nRanks : 1));
    std::vector<Runtime> rts(handles.size());  // before there is anything to lose
    check(ulyxRuntimeCreateLocal(&config, nRanks, devices, handles.data()));
    for (size_t rank = 0; rank < rts.size(); ++rank) rts[rank] = Runtime(handles[rank]);
    return rts;
  }
#endif
};

#ifndef ULYX_HPP_NO_EXCEPTIONS
inline ulyxUniqueId_t uniqueId() {
  ulyxUniqueId_t id;
  check(ulyxGetUniqueId(&id));
  return id;
}

/// Bytes of one rank's tensors and staging arena.
inline ulyxShapeBytes_t shapeBytes(const ulyxShape_t& shape, int nRanks, int rank) {
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  check(ulyxShapeGetBytes(&shape, nRanks, rank, &bytes));
  return bytes;
}

/// How long an exchange should take over NVLink.
inline ulyxShapeTimes_t shapeTimes(const ulyxShape_t& shape, int nRanks, ulyxOp_t op) {
  ulyxShapeTimes_t times = ULYX_SHAPE_TIMES_INITIALIZER;
  check(ulyxShapeGetTimes(&shape, nRanks, op, &times));
  return times;
}
#endif

}  // namespace ulyx

#endif  // ULYX_HPP_
