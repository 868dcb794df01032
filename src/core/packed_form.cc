#include "core/packed_form.h"

#include <cinttypes>

#include "base/bits.h"

namespace metal_marlin {

Status check_numbers(const PackedMatrix& found, uint64_t found_bytes,
                     const PackedNumbers& expected) {
  if (expected == PackedNumbers{found_bytes, found.slots, found.slot_group, found.own}) return {};
  return Status::error(MARLIN_E_FORMAT,
                       "packed weights [%" PRId64 ", %" PRId64 "]: expected %" PRIu64
                       " bytes of %" PRId64 " slots in groups of %d (own 0x%x), found %" PRIu64
                       " bytes of %" PRId64 " slots in groups of %d (own 0x%x)",
                       found.meta.n, found.meta.k, expected.bytes, expected.slots,
                       expected.slot_group, expected.own, found_bytes, found.slots,
                       found.slot_group, found.own);
}

Result<Slots> own_slots(const PackedMatrix& matrix, int64_t pad) {
  constexpr int64_t kMostPadding = 16;  // a group is as short as one slot, which is padded to 16
  const int64_t most = round_up(matrix.meta.k * kMostPadding, pad);
  if (matrix.slots >= matrix.meta.k && matrix.slots <= most && matrix.slots % pad == 0 &&
      is_slot_group(matrix.slot_group))
    return Slots{matrix.slots, matrix.slot_group, {}};
  return Status::error(MARLIN_E_FORMAT,
                       "packed weights [%" PRId64 ", %" PRId64 "]: expected %" PRId64 " to %" PRId64
                       " slots, a multiple of %" PRId64
                       ", in groups of 16, 32, 64 or 128, found %" PRId64 " in groups of %d",
                       matrix.meta.n, matrix.meta.k, pad, most, pad, matrix.slots,
                       matrix.slot_group);
}

}  // namespace metal_marlin
