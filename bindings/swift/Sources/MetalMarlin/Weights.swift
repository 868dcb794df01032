internal import CMetalMarlin

/// Packed weights W[N, K] on a device: immutable, to be shared among threads, independent of the file that they came from.
public final class Weights: Sendable {
  let handle: Handle
  /// Where they were packed.
  public let context: Context

  /// Loads and packs one whole layer of a checkpoint.
  public convenience init(layer name: String, of file: Checkpoint, in context: Context) throws(MarlinError) {
    try self.init(layers: [LayerPart(name)], of: file, in: context)
  }

  /// Loads and packs layers of a checkpoint as one, concatenated along N.
  ///
  /// - Parameters:
  ///   - layers: which, in the order of the result's rows.
  ///   - file: where they are; it may go afterwards.
  ///   - context: where the weights are to be.
  ///   - format: what layers of floats are quantized to; with ``Format/none`` they are an error.
  ///   - groupSize: of layers that are quantized; 0: the format's own.
  ///   - options: of layers that are quantized or pruned.
  ///   - experts: above 1: the layers are of that many experts, first those of expert 0, then as many of expert 1, and so on.
  ///   - progress: hears, on the calling thread, how many elements of W are done, and of how many. False stops it:
  ///     ``Status/cancelled``.
  public init(
    layers: [LayerPart], of file: Checkpoint, in context: Context, quantizedTo format: Format = .none, groupSize: Int = 0,
    options: LoadOptions = [], experts: Int = 1, progress: ((_ done: UInt64, _ total: UInt64) -> Bool)? = nil
  ) throws(MarlinError) {
    let callbacks = Callbacks()
    callbacks.loaded = progress
    var entry = PackedEntry(layers)
    (entry.format, entry.groupSize, entry.options, entry.experts) = (format, groupSize, options, experts)
    self.context = context
    handle = try withLoads([entry], []) { (loads) throws(MarlinError) in
      var desc: marlin_load_desc = loads[0]
      desc.progress = callbacks.cLoaded
      desc.user = callbacks.user
      return try Handle(keeping: context, destroy: \.weights_destroy) { api, out, error in
        withExtendedLifetime((file, callbacks)) {
          api.pointee.weights_load(context.handle.raw, file.handle.raw, &desc, out, error)
        }
      }
    }
  }

  /// Packs matrices, concatenated along N, into one. They must agree in K, format, group size and kinds of scales and zeros.
  ///
  /// - Parameters:
  ///   - parts: what to pack.
  ///   - experts: the parts are of that many experts: first all of expert 0, then as many with the same N of expert 1, and so on.
  ///   - context: where the weights are to be.
  public init(packing parts: [Pack], experts: Int = 1, in context: Context) throws(MarlinError) {
    let number = try count(parts.count, "the number of parts")
    let experts = try count(experts, "the number of experts")
    var descs: [marlin_pack_desc] = []
    for part in parts { descs.append(try part.desc()) }
    self.context = context
    handle = try withPointers(to: descs) { (descs) throws(MarlinError) in
      try Handle(keeping: context, destroy: \.weights_destroy) { api, out, error in
        withExtendedLifetime(parts) { api.pointee.weights_pack(context.handle.raw, descs, number, experts, out, error) }
      }
    }
  }

  /// Quantizes the floats of W[N, K], `rows` of them.
  public convenience init<T: FloatElement>(
    quantizing values: Span<T>, rows: Int, to format: Format, groupSize: Int = 0, options: PackOptions = [], in context: Context
  ) throws(MarlinError) {
    let handle = try values.withView(rows: rows) { (values) throws(MarlinError) in
      var pack = Pack(values, as: format)
      pack.groupSize = groupSize
      pack.options = options
      return try Weights(packing: [pack], in: context).handle
    }
    self.init(handle, in: context)
  }

  /// The same of an array.
  public convenience init<T: FloatElement>(
    quantizing values: [T], rows: Int, to format: Format, groupSize: Int = 0, options: PackOptions = [], in context: Context
  ) throws(MarlinError) {
    try self.init(quantizing: values.span, rows: rows, to: format, groupSize: groupSize, options: options, in: context)
  }

  private init(_ handle: Handle, in context: Context) { (self.handle, self.context) = (handle, context) }

  /// Shape, format and size.
  public func info() throws(MarlinError) -> LayerInfo {
    var info = marlin_layer_info.sized()
    try call(keeping: self) { api, error in api.pointee.weights_info(handle.raw, &info, error) }
    return withExtendedLifetime(self) { LayerInfo(info) }
  }

  /// C[M, N] = f(A[M, K] W^T + bias) (+ C), done on return. The spans hold `rows` equal rows: no gaps, nothing more.
  ///
  /// ```swift
  /// try weights.multiply(x.span, rows: 8, into: y.mutableSpan)  // [Float], or any other FloatElement
  /// ```
  ///
  /// - Parameters:
  ///   - a: [rows, K].
  ///   - rows: M.
  ///   - c: [rows, N].
  ///   - bias: [1, N], in the order of the weights' rows. ``Product`` takes one of another type, and matrices with gaps.
  ///   - epilogue: what becomes of the sums; those of two inputs give N/2 columns.
  ///   - compute: what becomes of the activations.
  ///   - accumulate: whether the result is added to what C holds.
  public func multiply<A: FloatElement, C: FloatElement>(
    _ a: Span<A>, rows: Int = 1, into c: consuming MutableSpan<C>, bias: Span<Float>? = nil, epilogue: Epilogue = .none,
    compute: Compute = .default, accumulate: Bool = false
  ) throws(MarlinError) {
    func run(_ c: inout MutableSpan<C>, _ bias: MatrixView?) throws(MarlinError) {
      try a.withView(rows: rows) { (a) throws(MarlinError) in
        try c.withView(rows: rows) { (c) throws(MarlinError) in
          try Product(a, by: self, into: c, bias: bias, epilogue: epilogue, compute: compute, accumulate: accumulate).run()
        }
      }
    }
    guard let bias else { return try run(&c, nil) }
    try bias.withView(rows: 1) { (bias) throws(MarlinError) in try run(&c, bias) }
  }

  /// The same of arrays: `c` has `rows` rows of results already, whose values are replaced.
  ///
  /// ```swift
  /// try weights.multiply(x, rows: 8, into: &y)
  /// ```
  public func multiply<A: FloatElement, C: FloatElement>(
    _ a: [A], rows: Int = 1, into c: inout [C], bias: [Float]? = nil, epilogue: Epilogue = .none, compute: Compute = .default,
    accumulate: Bool = false
  ) throws(MarlinError) {
    guard let bias else {
      return try multiply(
        a.span, rows: rows, into: c.mutableSpan, bias: nil, epilogue: epilogue, compute: compute, accumulate: accumulate)
    }
    try multiply(
      a.span, rows: rows, into: c.mutableSpan, bias: bias.span, epilogue: epilogue, compute: compute, accumulate: accumulate)
  }

  /// Decodes the rows from `firstRow` on, as many as `out` has, bit-exactly: `out` is [T, K] of floats, in the file's order of K.
  /// The rows of expert e begin at e N.
  public func unpack(firstRow: Int = 0, into out: MutableMatrixView) throws(MarlinError) {
    try unpack(nil, firstRow, into: out, on: nil)
  }

  /// Decodes the rows of these numbers: an embedding. `out` is [T, K] of floats.
  public func unpack(rows ids: [Int32], into out: MutableMatrixView) throws(MarlinError) {
    try ids.withUnsafeBufferPointer { (elements) throws(MarlinError) in
      try unpack(MatrixView(elements, rows: ids.count, columns: 1), 0, into: out, on: nil)
    }
  }

  /// A copy of rows, decoded bit-exactly, one after the other. The rows of expert e begin at e N.
  public func values(rows: Range<Int>) throws(MarlinError) -> [Float] {
    let info = try info()
    guard rows.lowerBound >= 0, rows.upperBound <= info.n * info.experts else {
      throw MarlinError(.argument, "rows \(rows) of weights that have \(info.n * info.experts)")
    }
    let columns = info.k
    var values = [Float](repeating: 0, count: rows.count * columns)
    try values.withUnsafeMutableBufferPointer { (elements) throws(MarlinError) in
      try unpack(firstRow: rows.lowerBound, into: MutableMatrixView(elements, rows: rows.count, columns: columns))
    }
    return values
  }

  func unpack(_ ids: MatrixView?, _ firstRow: Int, into out: MutableMatrixView, on stream: OpaquePointer?) throws(MarlinError) {
    let rows = ids?.raw ?? marlin_matrix()
    var out = out.raw
    try call(keeping: self) { api, error in
      withUnsafePointer(to: rows) { rows in
        api.pointee.weights_unpack(stream, handle.raw, ids == nil ? nil : rows, Int64(firstRow), &out, error)
      }
    }
  }
}
