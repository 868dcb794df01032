#include "fiber.h"

#include <cstdint>
#include <cstring>

// The return is a `ret`: the processor predicts it by the call of the fiber that is left, and fibers wait in the same places.
// A jump there would leave one entry too many for every return that follows.
#if defined(__x86_64__)
asm(R"(
  .text
  .p2align 4
  .globl metal_on_cpu_switch
  .hidden metal_on_cpu_switch
  .type metal_on_cpu_switch, @function
metal_on_cpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size metal_on_cpu_switch, . - metal_on_cpu_switch
)");
#elif defined(__aarch64__)
asm(R"(
  .text
  .p2align 4
  .globl metal_on_cpu_switch
  .hidden metal_on_cpu_switch
  .type metal_on_cpu_switch, %function
metal_on_cpu_switch:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
  .size metal_on_cpu_switch, . - metal_on_cpu_switch
)");
#else
#error "metal_on_cpu_switch is missing for this processor"
#endif

namespace metal_on_cpu {
namespace {

#if defined(__x86_64__)
// Registers, `entry` where the switch returns to, and a return address of 0 that ends a debugger's walk.
constexpr size_t kFrame = 8 * sizeof(void*), kEntry = 6 * sizeof(void*);
#else
constexpr size_t kFrame = 160, kEntry = 88;  // x30
#endif

}  // namespace

Context make_context(std::byte* top, void (*entry)()) {
  std::byte* frame = top - kFrame;
  std::memset(frame, 0, kFrame);
  std::memcpy(frame + kEntry, &entry, sizeof entry);
  return frame;
}

}  // namespace metal_on_cpu
