internal import CMetalMarlin

/// A product to be described: C[M, N] = f(A[M, K] W^T + bias) (+ C), where A, C and bias are each of a ``FloatElement``.
///
/// The methods `multiply` of ``Weights`` are the short way for memory that Swift owns.
public struct Product {
  /// W[N, K].
  public var weights: Weights
  /// A[M, K].
  public var a: MatrixView
  /// C[M, N], or N/2 columns for epilogues of two inputs.
  public var c: MutableMatrixView
  /// [1, N], in the order of the weights' rows; of experts also [E, N], a row for each.
  public var bias: MatrixView?
  /// What becomes of the sums.
  public var epilogue: Epilogue
  /// What becomes of the activations.
  public var compute: Compute
  /// Of ``Compute/int8``: activations of a row that share a scale, 32, 64, 128, or K and more for one scale per row; 0: 32.
  public var activationGroup: Int
  /// Of ``Epilogue/swiglu`` and ``Epilogue/situ``: the most that the gate becomes; 0: no limit, which SITU needs.
  public var gateLimit: Float = 0
  /// Of the same: how far from 0 the other may be.
  public var upLimit: Float = 0
  /// Of ``Epilogue/swiglu``, whose gate is g sigmoid(alpha g); 0: 1.
  public var gateAlpha: Float = 0
  /// Of ``Epilogue/swiglu``: is added to the other.
  public var upOffset: Float = 0
  /// Whether the result is added to what C holds.
  public var accumulate: Bool
  /// Whether a row of C has the same bits whatever M is, and whatever the other rows hold: those that it has alone.
  public var rowInvariant: Bool
  /// Routes each token to `topK` of the weights' experts: [T, topK] of `Int32`; an id outside 0..<E contributes 0. ``a`` is then
  /// [T, K], or [T * topK, K] with a row for each expert of a token, and ``c`` is [T * topK, N].
  public var expertIDs: MatrixView?
  /// [T, topK] of a ``FloatElement``, with ``expertIDs``: ``c`` is [T, N], the sum of each token's products times these.
  public var expertScales: MatrixView?

  public init(
    _ a: MatrixView, by weights: Weights, into c: MutableMatrixView, bias: MatrixView? = nil, epilogue: Epilogue = .none,
    compute: Compute = .default, accumulate: Bool = false, expertIDs: MatrixView? = nil, expertScales: MatrixView? = nil,
    rowInvariant: Bool = false, activationGroup: Int = 0
  ) {
    (self.weights, self.a, self.c, self.bias) = (weights, a, c, bias)
    (self.epilogue, self.compute, self.accumulate) = (epilogue, compute, accumulate)
    (self.expertIDs, self.expertScales, self.rowInvariant) = (expertIDs, expertScales, rowInvariant)
    self.activationGroup = activationGroup
  }

  /// Computes it; it is done on return.
  public func run() throws(MarlinError) { try submit(on: nil) }

  /// Computes independent products of one context in one submission, done on return; an A that several of them share is prepared
  /// once. All are checked before any is done.
  public static func run(_ products: [Product]) throws(MarlinError) { try submit(products, on: nil) }

  /// Compiles and reserves for these products with up to `maxRows` rows, or tokens of experts, so that ``run()`` neither allocates nor compiles. Work on a
  /// stream needs ``WorkStream/prepare(_:maxRows:)``.
  public static func prepare(_ products: [Product], maxRows: Int) throws(MarlinError) {
    _ = try prepare(products, maxRows: maxRows, on: nil)
  }

  /// Which kernel would run, which tiles, and why: `kernel: NAME`, then `key: value` lines.
  public func explanation() throws(MarlinError) -> String {
    var desc = desc
    var size = 0
    try call(keeping: self) { api, error in api.pointee.explain(&desc, nil, 0, &size, error) }
    var text = [CChar](repeating: 0, count: size)
    try call(keeping: self) { api, error in api.pointee.explain(&desc, &text, text.count, nil, error) }
    return text.withUnsafeBufferPointer { MetalMarlin.text($0.baseAddress) }
  }

  var desc: marlin_gemm_desc {
    var desc = marlin_gemm_desc.sized()
    desc.weights = weights.handle.raw
    desc.a = a.raw
    desc.c = c.raw
    desc.bias = bias?.raw ?? marlin_matrix()
    desc.epilogue = epilogue.rawValue
    desc.compute = compute.rawValue
    desc.activation_group = Int64(activationGroup)
    desc.gate_limit = gateLimit
    desc.up_limit = upLimit
    desc.gate_alpha = gateAlpha
    desc.up_offset = upOffset
    desc.flags = (accumulate ? MARLIN_GEMM_ACCUMULATE : 0) | (rowInvariant ? MARLIN_GEMM_ROW_INVARIANT : 0)
    desc.expert_ids = expertIDs?.raw ?? marlin_matrix()
    desc.expert_scales = expertScales?.raw ?? marlin_matrix()
    return desc
  }

  /// What must live until a stream has passed the product.
  var uses: [any AnyObject & Sendable] {
    [weights] + [a.owner, c.owner, bias?.owner, expertIDs?.owner, expertScales?.owner].compactMap { $0 }
  }

  func submit(on stream: OpaquePointer?) throws(MarlinError) {
    var desc = desc
    try call(keeping: self) { api, error in api.pointee.gemm(stream, &desc, error) }
  }

  /// Returns how many bytes scratch of the host's must have.
  static func prepare(_ products: [Product], maxRows: Int, on stream: OpaquePointer?) throws(MarlinError) -> UInt64 {
    let number = try count(products.count, "the number of products")
    var bytes: UInt64 = 0
    try withPointers(to: products.map(\.desc)) { (descs) throws(MarlinError) in
      try call(keeping: products) { api, error in api.pointee.prepare(stream, descs, number, Int64(maxRows), &bytes, error) }
    }
    return bytes
  }

  static func submit(_ products: [Product], on stream: OpaquePointer?) throws(MarlinError) {
    let number = try count(products.count, "the number of products")
    try withPointers(to: products.map(\.desc)) { (descs) throws(MarlinError) in
      try call(keeping: products) { api, error in api.pointee.gemm_many(stream, descs, number, error) }
    }
  }
}
