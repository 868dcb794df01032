internal import CMetalMarlin

typealias API = UnsafePointer<marlin_api>

/// The shared library that the system found for this program. All calls go through its table, so that a library that lacks
/// something is an error and not an undefined symbol.
enum Library {
  // Safe: the table is static storage of the library, and never changes.
  nonisolated(unsafe) private static let table = Result { () throws(MarlinError) in
    guard let table = marlin_get_api(UInt32(MARLIN_ABI_MAJOR)) else {
      throw MarlinError(.unsupported, "libmetal-marlin: expected ABI \(MARLIN_ABI_MAJOR), which this one does not serve")
    }
    let found = (table.pointee.abi_major, table.pointee.abi_minor)
    guard found.0 == MARLIN_ABI_MAJOR, found.1 >= MARLIN_ABI_MINOR else {
      throw MarlinError(
        .unsupported,
        "libmetal-marlin: expected ABI \(MARLIN_ABI_MAJOR).\(MARLIN_ABI_MINOR) or a later minor, found \(found.0).\(found.1)")
    }
    return table
  }

  static func api() throws(MarlinError) -> API { try table.get() }
}

/// The version of the shared library that this program runs with.
public func libraryVersion() throws(MarlinError) -> (major: Int, minor: Int, patch: Int) {
  let version = Int(try Library.api().pointee.version())
  return (version >> 16, version >> 8 & 0xFF, version & 0xFF)
}

/// Calls a function that returns a status. `keeping` lives until it has returned.
func call(
  keeping: Any, _ function: (API, UnsafeMutablePointer<marlin_error>) -> marlin_status
) throws(MarlinError) {
  defer { withExtendedLifetime(keeping) {} }
  let api = try Library.api()
  var error = marlin_error.sized()
  let status = function(api, &error)
  if status != MARLIN_OK { throw MarlinError(status: status, error) }
}

/// Calls `get` with 0, 1, ... until there is no such index.
func list<Item>(
  keeping: Any, _ get: (API, Int, UnsafeMutablePointer<marlin_error>) -> (marlin_status, Item)
) throws(MarlinError) -> [Item] {
  var items: [Item] = []
  do throws(MarlinError) {
    while true {
      var item: Item?
      try call(keeping: keeping) { api, error in
        let (status, found) = get(api, items.count, error)
        item = found
        return status
      }
      item.map { items.append($0) }
    }
  } catch  where error.status == .notFound {
    return items
  }
}

/// Owns one handle of the library.
final class Handle: Sendable {
  // Safe: an address; what is behind it the library guards as its header says.
  nonisolated(unsafe) let raw: OpaquePointer
  private let destroy: @Sendable (OpaquePointer) -> Void
  // Let go after the handle, so that callbacks are there to the end.
  private let keeps: (any Sendable)?

  init(
    keeping keeps: (any Sendable)? = nil, destroy: sending @escaping (marlin_api) -> (@convention(c) (OpaquePointer?) -> Void)?,
    _ create: (API, UnsafeMutablePointer<OpaquePointer?>, UnsafeMutablePointer<marlin_error>) -> marlin_status
  ) throws(MarlinError) {
    let release = destroy(try Library.api().pointee)
    var made: OpaquePointer?
    try call(keeping: keeps as Any) { api, error in create(api, &made, error) }
    guard let made else { throw MarlinError(.internal, "the library made a handle that is NULL") }
    raw = made
    self.destroy = { release?($0) }
    self.keeps = keeps
  }

  deinit { destroy(raw) }
}

// MARK: - C structs and texts

/// A struct that says its size.
protocol Sized {
  init()
  // swift-format-ignore: AlwaysUseLowerCamelCase
  var struct_size: UInt32 { get set }
}

extension Sized {
  /// All zero but its size.
  static func sized() -> Self {
    var result = Self()
    result.struct_size = UInt32(MemoryLayout<Self>.size)
    return result
  }
}

extension marlin_error: Sized {}
extension marlin_device_info: Sized {}
extension marlin_context_desc: Sized {}
extension marlin_stream_desc: Sized {}
extension marlin_pack_desc: Sized {}
extension marlin_gemm_desc: Sized {}
extension marlin_load_desc: Sized {}
extension marlin_open_desc: Sized {}
extension marlin_layer_info: Sized {}
extension marlin_convert_desc: Sized {}
extension marlin_save_desc: Sized {}
extension marlin_value: Sized {}

/// The text in an array of characters.
func text<Characters>(_ characters: Characters) -> String {
  withUnsafeBytes(of: characters) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
}

/// A text that the library lends; NULL is "".
func text(_ borrowed: UnsafePointer<CChar>?) -> String { borrowed.map { String(cString: $0) } ?? "" }

/// Calls with C's form of these texts. They end at their first NUL, and with one inside would mean something else.
func withC<R>(
  _ texts: [String], what: String, _ body: (UnsafePointer<UnsafePointer<CChar>?>?) throws(MarlinError) -> R
) throws(MarlinError) -> R {
  if let bad = texts.first(where: { $0.utf8.contains(0) }) {
    throw MarlinError(.argument, "\(what) \(bad.debugDescription) has a NUL in it")
  }
  let copies = texts.map { text -> UnsafePointer<CChar>? in
    let bytes = text.utf8CString
    let copy = UnsafeMutableBufferPointer<CChar>.allocate(capacity: bytes.count)
    _ = copy.initialize(from: bytes)
    return UnsafePointer(copy.baseAddress)
  }
  defer { for copy in copies { copy?.deallocate() } }
  return try copies.withUnsafeBufferPointer { (copies) throws(MarlinError) in try body(copies.baseAddress) }
}

/// Calls with the addresses of the elements of an array.
func withPointers<T, R>(
  to values: [T], _ body: (UnsafePointer<UnsafePointer<T>?>?) throws(MarlinError) -> R
) throws(MarlinError) -> R {
  try values.withUnsafeBufferPointer { (values) throws(MarlinError) in
    let pointers = values.indices.map { index in values.baseAddress.map { $0 + index } }
    return try pointers.withUnsafeBufferPointer { (pointers) throws(MarlinError) in try body(pointers.baseAddress) }
  }
}

/// A number that C holds in 32 bits.
func count(_ number: Int, _ what: String) throws(MarlinError) -> UInt32 {
  guard let count = UInt32(exactly: number) else {
    throw MarlinError(.argument, "\(what) is \(number), expected 0 to \(UInt32.max)")
  }
  return count
}
