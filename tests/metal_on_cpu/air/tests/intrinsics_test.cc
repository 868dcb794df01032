// Every air.* function of the wheel is called by one generated AIR kernel, converted, compiled and run on 32 lanes, and its
// results are compared with references that share no code with the bodies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llvm/AsmParser/Parser.h>
#include <llvm/Bitcode/BitcodeWriter.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/raw_ostream.h>

#include <cmath>
#include <cstring>
#include <random>

#include "../src/convert.h"
#include "lane_runner.h"
#include "references.h"
#include "wheel_intrinsics.h"

namespace metal_on_cpu::air {
namespace {

constexpr size_t kLanes = 32, kGroups = 24, kSlot = 16, kOperands = 5;  // kSlot: bytes, a multiple of every type's alignment

std::string bitcode_of(const std::string& assembly) {
  llvm::LLVMContext context;
  llvm::SMDiagnostic wrong;
  const auto module = llvm::parseAssemblyString(assembly, wrong, context);
  std::string text;
  llvm::raw_string_ostream out(text);
  if (!module) {
    wrong.print("test", out);
    ADD_FAILURE() << text;
    return "";
  }
  llvm::WriteBitcodeToFile(*module, out);
  return text;
}

// One kernel: buffer 0 operands, buffer 1 results, buffer 2 memory that matrices and atomics use; a slot for each lane,
// function and operand.
class Generator {
 public:
  std::string text() {
    for (size_t i = 0; i < std::size(kWheelIntrinsics); ++i) call(i);
    return "target triple = \"air64_v26-apple-macosx14.0.0\"\n" + declarations_ +
           "define void @all(ptr addrspace(1) %in, ptr addrspace(1) %out, ptr addrspace(1) %memory, i32 %row) {\n"
           "  %wide = zext i32 %row to i64\n  %first = mul i64 %wide, " +
           std::to_string(std::size(kWheelIntrinsics) * kOperands * kSlot) + "\n  %result = mul i64 %wide, " +
           std::to_string(std::size(kWheelIntrinsics) * kSlot) + "\n" + body_ +
           "  ret void\n}\n!air.kernel = !{!0}\n!0 = !{ptr @all, !1, !2}\n!1 = !{}\n!2 = !{!3, !4, !5, !6}\n" + buffer(3, 0) +
           buffer(4, 1) + buffer(5, 2) + "!6 = !{i32 3, !\"air.thread_position_in_grid\", !\"air.arg_name\", !\"row\"}\n";
  }

 private:
  static std::string buffer(int node, int index) {
    return "!" + std::to_string(node) + " = !{i32 " + std::to_string(index) +
           ", !\"air.buffer\", !\"air.location_index\", i32 " + std::to_string(index) +
           ", i32 1, !\"air.read_write\", !\"air.address_space\", i32 1, !\"air.arg_name\", !\"b\"}\n";
  }
  std::string fresh() { return "%v" + std::to_string(values_++); }
  std::string line(const std::string& expression) {
    const std::string v = fresh();
    body_ += "  " + v + " = " + expression + "\n";
    return v;
  }
  std::string address(const std::string& base, const std::string& row, size_t offset) {
    const std::string at = line("add i64 " + row + ", " + std::to_string(offset));
    return line("getelementptr i8, ptr addrspace(1) " + base + ", i64 " + at);
  }
  std::string operand(const std::string& type, size_t function, size_t k) {
    const bool atomic = std::string(kWheelIntrinsics[function].name).find("atomic") != std::string::npos;
    if (type.starts_with("ptr"))
      return line("getelementptr i8, ptr addrspace(1) %memory, i64 " + std::to_string(atomic ? kAtomicOffset : 0));
    const std::string at = address("%in", "%first", (function * kOperands + k) * kSlot);
    const Type t = parse_type(type);
    if (t.count == 64) {
      const std::string pair = "<2 x " + t.element + ">";
      std::string mask = "i32 0, i32 1";
      for (int i = 2; i < 64; ++i) mask += ", i32 poison";
      return line("shufflevector " + pair + " " + line("load " + pair + ", ptr addrspace(1) " + at) + ", " + pair +
                  " poison, <64 x i32> <" + mask + ">");
    }
    if (type == "i1") return line("trunc i8 " + line("load i8, ptr addrspace(1) " + at) + " to i1");
    return line("load " + type + ", ptr addrspace(1) " + at);
  }
  void keep(const std::string& type, const std::string& value, size_t function) {
    const std::string at = address("%out", "%result", function * kSlot);
    const Type t = parse_type(type);
    if (t.count == 64) {
      const std::string pair = "<2 x " + t.element + ">";
      body_ += "  store " + pair + " " +
               line("shufflevector " + type + " " + value + ", " + type + " poison, <2 x i32> <i32 0, i32 1>") +
               ", ptr addrspace(1) " + at + "\n";
    } else if (type == "i1") {
      body_ += "  store i8 " + line("zext i1 " + value + " to i8") + ", ptr addrspace(1) " + at + "\n";
    } else {
      body_ += "  store " + type + " " + value + ", ptr addrspace(1) " + at + "\n";
    }
  }
  void call(size_t index) {
    const Intrinsic& f = kWheelIntrinsics[index];
    const Prototype p = parse_prototype(f.type);
    std::string arguments;
    for (size_t k = 0; k < p.arguments.size(); ++k) {
      arguments += (k ? ", " : "") + p.arguments[k] + " " + operand(p.arguments[k], index, k);
    }
    std::string types;
    for (const std::string& a : p.arguments) types += (types.empty() ? "" : ", ") + a;
    declarations_ += "declare " + p.result + " @" + f.name + "(" + types + ")\n";
    const std::string expression = "call " + p.result + " @" + std::string(f.name) + "(" + arguments + ")";
    if (p.result == "void") {
      body_ += "  " + expression + "\n";
    } else {
      keep(p.result, line(expression), index);
    }
  }

  std::string declarations_, body_;
  size_t values_ = 0;
};

class Everything : public ::testing::Test {
 protected:
  static constexpr size_t kCount = std::size(kWheelIntrinsics), kRows = kLanes * kGroups;
  static std::vector<std::byte> in, out, memory;
  static std::string wrong;

  static void SetUpTestSuite() {
    in.assign(kRows * kCount * kOperands * kSlot, std::byte{0});
    out.assign(kRows * kCount * kSlot, std::byte{0xcd});
    memory.assign(kMemoryBytes, std::byte{0});
    for (size_t i = 0; i < kStoreRow * kStride; ++i) {
      const float x = matrix_value(i / kStride, i % kStride);
      std::memcpy(&memory[i * sizeof x], &x, sizeof x);
    }
    std::mt19937_64 random(1);
    for (size_t row = 0; row < kRows; ++row) {
      for (size_t f = 0; f < kCount; ++f)
        fill_operands(kWheelIntrinsics[f], row, random, [&](size_t k) { return operand(row, f, k); });
    }
    const std::string bitcode = bitcode_of(Generator().text());
    const auto ir = air_to_ir({reinterpret_cast<const std::byte*>(bitcode.data()), bitcode.size()}, {});
    if (!ir) {
      wrong = ir.message();
      return;
    }
    auto image = LaneImage::build(ir.value());
    if (!image) {
      wrong = image.message();
      return;
    }
    image.value()->run({in.data(), out.data(), memory.data()}, {kGroups, 1, 1}, kLanes);
  }
  static void TearDownTestSuite() { in = {}, out = {}, memory = {}; }
  static std::byte* operand(size_t row, size_t f, size_t k) { return &in[((row * kCount + f) * kOperands + k) * kSlot]; }
  static const std::byte* result(size_t row, size_t f) { return &out[(row * kCount + f) * kSlot]; }
};
std::vector<std::byte> Everything::in, Everything::out, Everything::memory;
std::string Everything::wrong;

TEST_F(Everything, AgreesWithItsReference) {
  ASSERT_EQ(wrong, "");
  size_t checked = 0;
  for (size_t f = 0; f < kCount; ++f) {
    const Intrinsic& intrinsic = kWheelIntrinsics[f];
    for (size_t first = 0; first < kRows; first += kLanes) {
      Simdgroup lanes;
      for (size_t lane = 0; lane < kLanes; ++lane) {
        for (size_t k = 0; k < kOperands; ++k) lanes.operands[lane][k] = operand(first + lane, f, k);
        lanes.results[lane] = result(first + lane, f);
      }
      const std::string difference = check(intrinsic, lanes);
      ASSERT_EQ(difference, "") << intrinsic.name << " in rows from " << first;
    }
    ++checked;
  }
  EXPECT_EQ(checked, 224u);
}

// A reference that takes any result for right would prove nothing.
TEST_F(Everything, NoSpoiltResultPasses) {
  ASSERT_EQ(wrong, "");
  for (size_t f = 0; f < kCount; ++f) {
    const Prototype p = parse_prototype(kWheelIntrinsics[f].type);
    if (p.result == "void" || std::string(kWheelIntrinsics[f].name).find("atomic") != std::string::npos) continue;
    Simdgroup lanes;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      for (size_t k = 0; k < kOperands; ++k) lanes.operands[lane][k] = operand(lane, f, k);
      lanes.results[lane] = result(lane, f);
    }
    std::byte spoilt[kSlot];
    std::memcpy(spoilt, lanes.results[7], kSlot);
    const std::string element = parse_type(p.result).element;
    const size_t last = element == "i1" || element == "i8"       ? 0
                        : element == "i64"                       ? 7
                        : element == "i32" || element == "float" ? 3
                                                                 : 1;
    spoilt[last] ^= std::byte{element == "i1" ? uint8_t{1} : uint8_t{64}};
    lanes.results[7] = spoilt;
    EXPECT_NE(check(kWheelIntrinsics[f], lanes), "") << kWheelIntrinsics[f].name;
  }
}

TEST_F(Everything, AtomicsAddUpAndMatricesAreStored) {
  ASSERT_EQ(wrong, "");
  float sum = 0;
  std::memcpy(&sum, memory.data() + kAtomicOffset, sizeof sum);
  EXPECT_EQ(sum, static_cast<float>(kRows)) << "each lane adds 1";
  size_t store = 0;
  while (std::string(kWheelIntrinsics[store].name).find("8x8_store") == std::string::npos) ++store;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    for (size_t i = 0; i < 2; ++i) {
      float x = 0, y = 0;
      std::memcpy(&x, operand(kRows - kLanes + lane, store, 0) + i * sizeof x, sizeof x);
      const size_t row = (lane >> 1 & 3) | (lane >> 4 & 1) << 2, column = ((lane & 1) | (lane >> 3 & 1) << 1) * 2 + i;
      std::memcpy(&y, &memory[((kStoreRow + row) * kStride + column) * sizeof y], sizeof y);
      EXPECT_EQ(x, y) << "row " << row << ", column " << column << " of the last simdgroup's matrix";
    }
  }
}

}  // namespace
}  // namespace metal_on_cpu::air
