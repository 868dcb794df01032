// The boundary over a backend that does what the tests want: exceptions, device errors, other kinds of devices, life times.
#include <new>

#include "api/errors.h"
#include "api/stream.h"
#include "api/weights.h"
#include "fake_backend.h"
#include "support.h"
#include "test.h"

namespace abi_test {
namespace {

using metal_marlin::Status;

class Boundary : public testing::Test {
 protected:
  Boundary() : context(fake_context(record)), weights(quantized(context, 8, 32)), product(weights, 2) { record.calls.clear(); }
  ~Boundary() override {
    weights.reset();
    context.reset();
    EXPECT_EQ(record.backends, 0);
    EXPECT_EQ(record.streams, 0);
    EXPECT_EQ(record.weights, 0);
  }
  const marlin_gemm_desc* desc() const { return &product.desc; }

  FakeRecord record;
  mm::context context;
  mm::weights weights;
  Product product;
};

TEST_F(Boundary, ExceptionsBecomeStatuses) {
  record.answer = [](const char*) -> Status { throw std::bad_alloc(); };
  EXPECT_FAILS(MARLIN_E_MEMORY, "out of memory", marlin_gemm, nullptr, desc());
  record.answer = [](const char*) -> Status { throw std::length_error("vector"); };
  EXPECT_FAILS(MARLIN_E_MEMORY, "out of memory", marlin_gemm, nullptr, desc());
  record.answer = [](const char*) -> Status { throw std::runtime_error("a bug"); };
  EXPECT_FAILS(MARLIN_E_INTERNAL, "a bug", marlin_gemm, nullptr, desc());
  record.answer = [](const char*) -> Status { throw 42; };
  EXPECT_FAILS(MARLIN_E_INTERNAL, "unknown type", marlin_gemm, nullptr, desc());

  mm::stream stream;
  EXPECT_FAILS(MARLIN_E_INTERNAL, "unknown type", marlin_stream_create, context.get(), nullptr, stream.out());
  EXPECT_FALSE(stream);
  record.answer = [](const char*) { return Status(); };
  EXPECT_OK(marlin_gemm, nullptr, desc());
}

TEST_F(Boundary, DeviceErrorsKeepTheirCodeAndText) {
  record.answer = [](const char*) { return Status::error(MARLIN_E_DEVICE, "lost").with_native(719); };
  auto err = mm::make<marlin_error>();
  EXPECT_EQ(marlin_gemm(nullptr, desc(), &err), MARLIN_E_DEVICE);
  EXPECT_EQ(err.native_code, 719);
  EXPECT_STREQ(err.message, "lost");
  const marlin_gemm_desc* const two[] = {desc(), desc()};
  EXPECT_EQ(marlin_prepare(nullptr, two, 2, 1, nullptr, &err), MARLIN_E_DEVICE);
  EXPECT_EQ(err.native_code, 719);
  EXPECT_STREQ(err.message, "descs[0]: lost");
}

TEST_F(Boundary, MessagesAreAlwaysUtf8) {
  const std::pair<const char*, const char*> cases[] = {
      {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x9f", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x9f"},
      {"\xff\xc3", "\\xff\\xc3"},
      {"\xc0\xaf \xed\xa0\x80 \xf5\x80", "\\xc0\\xaf \\xed\\xa0\\x80 \\xf5\\x80"},
      {"\xe0\x80\x80\xf0\x80\x80\x80\xf4\x90\x80\x80", "\\xe0\\x80\\x80\\xf0\\x80\\x80\\x80\\xf4\\x90\\x80\\x80"},
      {"\xe2\x82", "\\xe2\\x82"}};
  for (const auto& [given, expected] : cases) {
    record.answer = [text = given](const char*) { return Status::error(MARLIN_E_DEVICE, "%s", text); };
    EXPECT_EQ(call(marlin_gemm, nullptr, desc()).message, expected);
  }
  // Cut in the middle of a sequence.
  record.answer = [](const char*) { return Status::error(MARLIN_E_DEVICE, "%s\xe2\x82\xac", std::string(238, 'x').c_str()); };
  EXPECT_EQ(call(marlin_gemm, nullptr, desc()).message, std::string(238, 'x'));
}

TEST_F(Boundary, WaitPassesTheTimeAndTheTimeout) {
  mm::stream stream(context);
  EXPECT_OK(marlin_stream_wait, stream.get(), UINT64_MAX);
  EXPECT_EQ(record.timeout_ns, UINT64_MAX);
  record.answer = [](const char*) { return Status::error(MARLIN_E_TIMEOUT, "not done"); };
  EXPECT_FAILS(MARLIN_E_TIMEOUT, "not done", marlin_stream_wait, stream.get(), uint64_t{0});
  EXPECT_EQ(record.timeout_ns, 0u);
  EXPECT_FALSE(stream.wait_for(5));
  record.answer = [](const char*) { return Status(); };
  EXPECT_TRUE(stream.wait_for(5));
}

TEST_F(Boundary, NothingIsSubmittedUnlessAllIsValid) {
  Product other(weights, 2);
  other.desc.a.cols = 31;
  const marlin_gemm_desc* const descs[] = {desc(), &other.desc};
  EXPECT_FAILS(MARLIN_E_SHAPE, "descs[1]: a.cols", marlin_gemm_many, nullptr, descs, 2u);
  EXPECT_TRUE(record.products.empty());
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "descs[1]: desc is NULL", marlin_gemm_many, nullptr,
               std::begin({desc(), static_cast<const marlin_gemm_desc*>(nullptr)}), 2u);
  EXPECT_TRUE(record.products.empty());
}

TEST_F(Boundary, WithoutRowsOrProductsTheBackendIsNotAsked) {
  Product empty(weights, 0);
  EXPECT_OK(marlin_gemm, nullptr, &empty.desc);
  empty.desc.a.data = empty.desc.c.data = nullptr;
  EXPECT_OK(marlin_gemm, nullptr, &empty.desc);
  EXPECT_OK(marlin_gemm_many, nullptr, nullptr, 0u);
  uint64_t scratch = 1;
  EXPECT_OK(marlin_prepare, nullptr, nullptr, 0u, int64_t{8}, &scratch);
  EXPECT_EQ(scratch, 0u);
  EXPECT_TRUE(record.products.empty());
}

TEST_F(Boundary, AnyNumberOfProductsIsOneSubmission) {
  mm::stream stream(context);
  for (const marlin_stream* s : {static_cast<const marlin_stream*>(nullptr), static_cast<const marlin_stream*>(stream.get())})
    for (const uint32_t count : {1u, 7u, 8u, 9u, 40u}) {
      std::vector<std::unique_ptr<Product>> products;
      std::vector<const marlin_gemm_desc*> descs;
      for (uint32_t i = 0; i < count; ++i) {
        products.push_back(std::make_unique<Product>(weights, 1));
        descs.push_back(&products.back()->desc);
      }
      record.products.clear();
      EXPECT_OK(marlin_gemm_many, const_cast<marlin_stream*>(s), descs.data(), count);
      EXPECT_THAT(record.products, ElementsAre(count));
      EXPECT_EQ(record.stream != nullptr, s != nullptr);
    }
}

// A backend makes one plan for each product, and gets each plan back with its product.
TEST_F(Boundary, EveryProductIsPlannedOnce) {
  EXPECT_OK(marlin_gemm, nullptr, desc());
  EXPECT_THAT(record.calls, ElementsAre("plan", "gemm"));
  EXPECT_THAT(record.consumed, ElementsAre(1));
  size_t needed = 0;
  EXPECT_OK(marlin_explain, desc(), nullptr, size_t{0}, &needed);
  EXPECT_THAT(record.calls, ElementsAre("plan", "gemm", "plan", "explain"));
  EXPECT_THAT(record.consumed, ElementsAre(2));

  for (const uint32_t count : {3u, 20u}) {
    std::vector<std::unique_ptr<Product>> products;
    std::vector<const marlin_gemm_desc*> descs;
    std::vector<int> expected;
    for (uint32_t i = 0; i < count; ++i) {
      products.push_back(std::make_unique<Product>(weights, 1));
      descs.push_back(&products.back()->desc);
      expected.push_back(record.plans + 1 + static_cast<int>(i));
    }
    EXPECT_OK(marlin_gemm_many, nullptr, descs.data(), count);
    EXPECT_EQ(record.consumed, expected);
  }
}

TEST_F(Boundary, TheErrorOfAPlanNamesItsProduct) {
  record.answer = [this](const char* call) {
    const bool second = std::string_view(call) == "plan" && std::ranges::count(record.calls, "plan") == 2;
    return second ? Status::error(MARLIN_E_UNSUPPORTED, "no kernel") : Status();
  };
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "descs[1]: no kernel", marlin_gemm_many, nullptr, std::begin({desc(), desc()}), 2u);
  EXPECT_TRUE(record.products.empty());
}

TEST_F(Boundary, PrepareReportsTheScratchAndReadsNoPointer) {
  uint64_t scratch = 0;
  marlin_gemm_desc d = *desc();
  d.a.data = nullptr;
  d.c.data = reinterpret_cast<char*>(product.c.data()) + 3;
  const marlin_gemm_desc* const descs[] = {&d};
  EXPECT_OK(marlin_prepare, nullptr, descs, 1u, int64_t{16}, &scratch);
  EXPECT_EQ(scratch, 12345u);
  EXPECT_OK(marlin_prepare, nullptr, descs, 1u, int64_t{16}, nullptr);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "max_m is -1", marlin_prepare, nullptr, descs, 1u, int64_t{-1}, &scratch);
}

TEST_F(Boundary, MemoryAndStreamsOfAnotherBackendAreRefused) {
  for (const auto& [memory, name] : {std::pair(MARLIN_MEM_CUDA, "backend is 1, expected CUDA (3)"),
                                     std::pair(MARLIN_MEM_METAL, "backend is 1, expected Metal (2)")}) {
    marlin_gemm_desc d = *desc();
    d.a.memory = memory;
    EXPECT_FAILS(MARLIN_E_ARGUMENT, name, marlin_gemm, nullptr, &d);
  }
  FakeRecord cuda_record, metal_record;
  mm::context cuda(fake_context(cuda_record, MARLIN_BACKEND_CUDA)), metal(fake_context(metal_record, MARLIN_BACKEND_METAL));
  auto d = mm::make<marlin_stream_desc>();
  mm::stream stream;
  for (d.kind = MARLIN_NATIVE_CUDA_STREAM; d.kind <= MARLIN_NATIVE_METAL_ENCODER; ++d.kind) {
    const bool is_cuda = d.kind == MARLIN_NATIVE_CUDA_STREAM;
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "desc->kind", marlin_stream_create, context.get(), &d, stream.out());
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "desc->kind", marlin_stream_create, (is_cuda ? metal : cuda).get(), &d, stream.out());
    EXPECT_OK(marlin_stream_create, (is_cuda ? cuda : metal).get(), &d, stream.out());
  }
  d.kind = MARLIN_NATIVE_NONE;
  d.native = &d;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "desc->native", marlin_stream_create, cuda.get(), &d, stream.out());
  const mm::weights on_cuda = quantized(cuda, 8, 32);
  Product p(on_cuda, 2);
  p.desc.a.memory = MARLIN_MEM_CUDA;
  EXPECT_OK(marlin_gemm, nullptr, &p.desc);
}

TEST_F(Boundary, NothingCrossesContexts) {
  FakeRecord other_record;
  const mm::context other(fake_context(other_record));
  const mm::weights theirs = quantized(other, 8, 32);
  mm::stream stream(other);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "another context", marlin_gemm, stream.get(), desc());
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "another context", marlin_weights_unpack, stream.get(), weights.get(), nullptr, int64_t{0},
               &product.desc.c);
  Product p(theirs, 2);
  const marlin_gemm_desc* const descs[] = {desc(), &p.desc};
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "descs[1]: weights belong to another context", marlin_gemm_many, nullptr, descs, 2u);
  const mm::buffer buffer(other, 4096);
  marlin_gemm_desc d = *desc();
  d.a.data = buffer.get();
  d.a.memory = MARLIN_MEM_BUFFER;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "another context", marlin_gemm, nullptr, &d);
}

TEST_F(Boundary, ChildrenKeepTheirContextAlive) {
  mm::stream stream(context);
  mm::buffer buffer(context, 100);
  marlin_context* const destroyed = context.get();
  context.reset();
  EXPECT_EQ(record.backends, 1);
  // While children live the context is known to be destroyed.
  mm::stream none;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "context is a destroyed handle", marlin_stream_create, destroyed, nullptr, none.out());
  marlin_context_destroy(destroyed);
  EXPECT_OK(marlin_gemm, stream.get(), desc());
  weights.reset();
  EXPECT_EQ(record.weights, 0);
  stream.reset();
  EXPECT_EQ(record.backends, 1);
  buffer.reset();
  EXPECT_EQ(record.backends, 0);
}

TEST_F(Boundary, ADestroyedStreamIsAnErrorAndItsAddressIsNotUsedSoon) {
  mm::stream stream(context);
  marlin_stream* const gone = stream.get();
  stream.reset();
  EXPECT_EQ(record.streams, 0);
  marlin_stream_destroy(gone);  // does nothing
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "stream is a destroyed handle", marlin_gemm, gone, desc());
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "stream is a destroyed handle", marlin_stream_wait, gone, uint64_t{0});
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "stream is a destroyed handle", marlin_stream_flush, gone);
  for (size_t i = 0; i < metal_marlin::api::StreamShells::kKept; ++i) {
    mm::stream next(context);
    ASSERT_NE(next.get(), gone) << i;
  }
}

TEST_F(Boundary, AStreamAFrameDoesNotAddUp) {
  std::set<marlin_stream*> addresses;
  for (int frame = 0; frame < 5000; ++frame) addresses.insert(mm::stream(context).get());
  EXPECT_LE(addresses.size(), metal_marlin::api::StreamShells::kKept + 2);
  EXPECT_EQ(record.streams, 0);
}

TEST_F(Boundary, ScratchReachesTheBackendAndStaysApart) {
  std::vector<uint8_t> memory(1000);
  auto d = mm::make<marlin_stream_desc>();
  d.scratch = mm::matrix_view(memory.data() + 1, 3, 300);
  mm::stream stream(context, d);
  EXPECT_OK(marlin_gemm, stream.get(), desc());
  const auto scratch = static_cast<FakeStream*>(record.stream)->scratch;
  EXPECT_EQ(static_cast<uint8_t*>(scratch.data), memory.data() + 1);
  EXPECT_EQ(scratch.rows * scratch.cols, 900);

  for (const bool output : {false, true}) {
    d.scratch = mm::matrix_view(reinterpret_cast<uint8_t*>((output ? product.c : product.a).data()), 1, 5);
    const mm::stream overlapping(context, d);
    EXPECT_FAILS(MARLIN_E_ARGUMENT, output ? "c overlaps the scratch" : "a overlaps the scratch", marlin_gemm,
                 overlapping.get(), desc());
  }
  mm::stream none;
  d.scratch = mm::matrix_view(memory.data(), 3, 300, 301);
  EXPECT_FAILS(MARLIN_E_SHAPE, "no gaps", marlin_stream_create, context.get(), &d, none.out());
  d.scratch = mm::matrix_view(memory.data(), 1, 0);
  EXPECT_FAILS(MARLIN_E_SHAPE, "no bytes", marlin_stream_create, context.get(), &d, none.out());
  d.scratch = mm::matrix_view(reinterpret_cast<int8_t*>(memory.data()), 1, 300);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "U8", marlin_stream_create, context.get(), &d, none.out());
}

/// What only the device reaches is bounded by what the backend says of it, and its address stands for it in every check.
TEST(NativeMemory, IsCheckedAndHandedOn) {
  FakeRecord record;
  record.native_bytes = 8 * 4 * 3;
  const mm::context context(fake_context(record, MARLIN_BACKEND_METAL));
  const mm::weights weights = quantized(context, 8, 32);
  Product product(weights, 2);
  alignas(256) std::byte object[256];
  product.desc.c.data = object;
  product.desc.c.memory = MARLIN_MEM_METAL;
  product.desc.c.offset_bytes = 32;
  EXPECT_OK(marlin_gemm, nullptr, &product.desc);
  EXPECT_EQ(record.c.native, object);
  EXPECT_EQ(record.c.offset, 32u);
  EXPECT_EQ(record.c.data, object + 32);

  product.desc.c.offset_bytes = 36;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "c needs 64 bytes at offset 36, the buffer holds 96", marlin_gemm, nullptr, &product.desc);
  product.desc.c.offset_bytes = 30;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "a multiple of its element's 4 bytes", marlin_gemm, nullptr, &product.desc);
  product.desc.c.offset_bytes = 0;
  product.desc.bias = product.desc.c;
  product.desc.bias.rows = 1;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "c overlaps bias", marlin_gemm, nullptr, &product.desc);
  record.answer = [](const char* call) {
    return std::string(call) == "native_memory" ? Status::error(MARLIN_E_ARGUMENT, "no buffer of this device") : Status();
  };
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "no buffer of this device", marlin_gemm, nullptr, &product.desc);
}

TEST(NativeMemory, CannotBePacked) {
  FakeRecord record;
  record.native_bytes = 1 << 20;
  const mm::context context(fake_context(record, MARLIN_BACKEND_METAL));
  alignas(256) std::byte object[256];
  auto d = mm::make<marlin_pack_desc>();
  d.format = MARLIN_FORMAT_INT4;
  d.n = 8;
  d.k = 32;
  d.values = mm::matrix_view(reinterpret_cast<float*>(object), 8, 32);
  d.values.memory = MARLIN_MEM_METAL;
  mm::weights weights;
  const marlin_pack_desc* parts[] = {&d};
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "values.memory is 2, expected 0 (host) or 3 (buffer)", marlin_weights_pack, context.get(),
               parts, 1u, 0u, weights.out());
}

TEST_F(Boundary, ExplainSizes) {
  const std::string full = "kernel: fake\nwhy: a test\n";
  size_t needed = 0;
  EXPECT_OK(marlin_explain, desc(), nullptr, size_t{0}, &needed);
  EXPECT_EQ(needed, full.size() + 1);
  for (size_t capacity = 1; capacity <= full.size() + 3; ++capacity) {
    std::string text(capacity + 1, '#');
    EXPECT_OK(marlin_explain, desc(), text.data(), capacity, nullptr);
    EXPECT_EQ(text.c_str(), full.substr(0, capacity - 1));
    EXPECT_EQ(text[capacity], '#');
  }
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "text is NULL", marlin_explain, desc(), nullptr, size_t{1}, &needed);
}

TEST_F(Boundary, AnErrThatCannotBeFilledStopsTheCall) {
  marlin_error err{};
  err.message[0] = 'x';
  mm::stream stream;
  marlin_stream* untouched = reinterpret_cast<marlin_stream*>(&err);
  for (const uint32_t size : {0u, 4u, 255u, 260u, 4097u}) {
    err.struct_size = size;
    EXPECT_EQ(marlin_stream_create(context.get(), nullptr, &untouched, &err), MARLIN_E_STRUCT_SIZE);
    EXPECT_EQ(untouched, nullptr);
    EXPECT_EQ(marlin_gemm(nullptr, desc(), &err), MARLIN_E_STRUCT_SIZE);
    EXPECT_EQ(err.message[0], 'x');
    EXPECT_EQ(err.status, MARLIN_OK);
  }
  EXPECT_TRUE(record.calls.empty());
}

TEST_F(Boundary, ALongerErrIsFilledWithZeros) {
  struct Later {
    marlin_error err;
    uint64_t unknown[3];
  } later;
  std::memset(&later, 0xEE, sizeof later);
  later.err.struct_size = sizeof later;
  EXPECT_EQ(marlin_gemm(nullptr, nullptr, &later.err), MARLIN_E_ARGUMENT);
  EXPECT_EQ(later.err.status, MARLIN_E_ARGUMENT);
  EXPECT_EQ(later.err.struct_size, sizeof later);
  EXPECT_EQ(later.err.reserved, 0u);
  EXPECT_EQ(later.unknown[0] | later.unknown[1] | later.unknown[2], 0u);
}

/// A container is of the backend that packed it.
TEST(PackedFiles, AreOfOneBackend) {
  const mm::checkpoint packed(std::string(MARLIN_TEST_DATA) + "/container-v1-ct-nvfp4.marlin");
  const std::string layer = packed.layers().at(0).name;
  const char* const names[] = {layer.c_str(), nullptr};
  auto load = mm::make<marlin_load_desc>();
  load.layers = names;
  load.layer_count = 1;
  FakeRecord record;
  const mm::context context(fake_context(record));
  mm::weights other;
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "packed for the device cpu, expected fake", marlin_weights_load, context.get(),
               packed.get(), &load, other.out());
  const mm::context cpu(MARLIN_BACKEND_CPU);
  load.layer_count = 2;
  mm::weights none;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "layers[1]: NULL, expected a layer's name", marlin_weights_load, cpu.get(), packed.get(),
               &load, none.out());
}

/// A dry run of a conversion whose descriptor has one layer, to GGUF.
struct DryRun {
  DryRun() {
    desc.scheme = MARLIN_SCHEME_GGUF;
    desc.flags = MARLIN_CONVERT_DRY_RUN;
    desc.layers = layers;
    desc.layer_count = 1;
  }
  void fails(const char* path, const std::string& said) const {
    EXPECT_FAILS(MARLIN_E_ARGUMENT, said.c_str(), marlin_checkpoint_convert, source.get(), path, &desc);
  }
  const mm::checkpoint source{std::string(MARLIN_TEST_DATA) + "/float-f32"};
  const std::string name = source.layers().at(0).name;
  const char* layers[2] = {name.c_str(), nullptr};
  marlin_convert_desc desc = mm::make<marlin_convert_desc>();
};

TEST(Conversions, NameAFileOfTheirScheme) {
  DryRun run;
  run.fails("out.safetensors", "out.safetensors: expected a folder or a name in .gguf for this scheme");
  run.desc.scheme = MARLIN_SCHEME_COMPRESSED_TENSORS;
  run.fails("out.gguf", "out.gguf: expected a folder or a name in .safetensors for this scheme");
}

TEST(Conversions, NameTypesOfBlocks) {
  DryRun run;
  const char* types[] = {nullptr};
  run.desc.types = types;
  for (const char* wrong : {"Q9_X", "F16", ""}) {
    types[0] = wrong;
    run.fails("out.gguf", "desc->types[0]: expected one of ");
    run.fails("out.gguf", std::string("; found ") + wrong);
  }
  types[0] = "Q4_0";
  EXPECT_EQ(marlin_checkpoint_convert(run.source.get(), "out.gguf", &run.desc, nullptr), MARLIN_OK);
}

TEST(Conversions, NameEachLayerOnce) {
  DryRun run;
  run.desc.layer_count = 0;
  run.fails("out.gguf", "desc names no layers");
  run.desc.layer_count = 2;
  run.fails("out.gguf", "layers[1]: NULL, expected a layer's name");
  run.layers[1] = run.layers[0];
  run.fails("out.gguf", "layers[1]: " + run.name + " is listed twice");
}

TEST(Conversions, TakeNormsWhereTheyAreUsed) {
  DryRun run;
  const marlin_matrix norms[] = {{}};
  run.desc.column_norms = norms;
  run.fails("out.gguf", " uses with PRUNE_2_4 or SCALES_MSE only");
}

TEST_F(Boundary, WhatOnlyTheCpuDoes) {
  std::vector<uint8_t> blocks(8 * 18);
  const marlin_matrix out = mm::matrix_view(blocks.data(), 8, 18);
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "only the CPU gives blocks back", marlin_weights_unpack, nullptr, weights.get(), nullptr,
               int64_t{0}, &out);
}

TEST_F(Boundary, ErrorsOfABackendAreThoseOfTheCall) {
  record.answer = [](const char* call) { return Status::error(MARLIN_E_DEVICE, "no %s", call); };
  size_t needed = 0;
  mm::stream stream;
  record.answer = [](const char* call) {
    return std::string_view(call) == "plan" ? Status() : Status::error(MARLIN_E_DEVICE, "no %s", call);
  };
  EXPECT_FAILS(MARLIN_E_DEVICE, "no explain", marlin_explain, desc(), nullptr, size_t{0}, &needed);
  EXPECT_FAILS(MARLIN_E_DEVICE, "no create_stream", marlin_stream_create, context.get(), nullptr, stream.out());
}

TEST_F(Boundary, TheExpertWhosePartsDoNotAgreeIsNamed) {
  const std::vector<float> values = numbers(8 * 64, 5);
  const marlin_pack_desc narrow = pack_desc(values, 8, 32), wide = pack_desc(values, 8, 64);
  const marlin_pack_desc* const parts[] = {&narrow, &narrow, &narrow, &wide};
  mm::weights none;
  EXPECT_FAILS(MARLIN_E_SHAPE, "experts[1]: ", marlin_weights_pack, context.get(), parts, 4u, 2u, none.out());
}

TEST_F(Boundary, WholeNumbersAreNoOperands) {
  for (const marlin_dtype dtype : {MARLIN_I64, MARLIN_I32, MARLIN_I16, MARLIN_E8M0}) {
    std::vector<uint64_t> memory(64);
    marlin_gemm_desc d = *desc();
    d.a.data = memory.data();
    d.a.dtype = dtype;
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "a.dtype", marlin_gemm, nullptr, &d);
  }
}

}  // namespace
}  // namespace abi_test
