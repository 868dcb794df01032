// Reads memory and does nothing with it: the least time that a product of so many bytes can take.
extern "C" __global__ void __launch_bounds__(512) read_floor(const uint4* from, unsigned long long count, unsigned* to) {
  unsigned all = 0;
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * step < count; i += 4 * step) {
    uint4 v[4];
#pragma unroll
    for (int u = 0; u < 4; u++) v[u] = __ldcs(from + i + u * step);
#pragma unroll
    for (int u = 0; u < 4; u++) all ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  for (; i < count; i += step) all ^= from[i].x;
  if (all == 0x12345678u) *to = all;
}
