internal import CMetalMarlin

/// What a file says about its model under one key. The numbers of an array are widened to 64 bits, as a single number is. Bytes of
/// a text that are no UTF-8 become U+FFFD.
public enum Value: Hashable, Sendable {
  case bool(Bool)
  /// Of a signed type; every integer of config.json that fits.
  case integer(Int64)
  /// Of an unsigned type.
  case natural(UInt64)
  case real(Double)
  case text(String)
  case bools([Bool])
  case integers([Int64])
  case naturals([UInt64])
  case reals([Double])
  case texts([String])
}

extension Checkpoint {
  /// The value of a key of a GGUF, or of a member of config.json: "quantization_config.bits" is inside of an object. It is nil when
  /// there is no such key.
  public func value(_ key: String) throws(MarlinError) -> Value? {
    var raw = marlin_value.sized()
    do throws(MarlinError) {
      try withC([key], what: "the key") { (keys) throws(MarlinError) in
        try call(keeping: self) { api, error in api.pointee.checkpoint_value(handle.raw, keys?.pointee, &raw, error) }
      }
    } catch  where error.status == .notFound {
      return nil
    }
    return try value(of: raw)
  }

  /// All keys and their values, in the order of the file.
  public func values() throws(MarlinError) -> [(key: String, value: Value)] {
    let all = try list(keeping: self) { api, index, error in
      var raw = marlin_value.sized()
      let status = api.pointee.checkpoint_value_at(handle.raw, UInt64(index), &raw, error)
      return (status, raw)
    }
    var values: [(key: String, value: Value)] = []
    for raw in all { values.append((key(of: raw), try value(of: raw))) }
    return values
  }

  private func key(of raw: marlin_value) -> String {
    defer { withExtendedLifetime(self) {} }
    return decoded(raw.key, raw.key_bytes)
  }

  private func value(of raw: marlin_value) throws(MarlinError) -> Value {
    defer { withExtendedLifetime(self) {} }
    switch raw.kind {
    case MARLIN_VALUE_BOOL: return .bool(raw.i64 != 0)
    case MARLIN_VALUE_I64: return .integer(raw.i64)
    case MARLIN_VALUE_U64: return .natural(raw.u64)
    case MARLIN_VALUE_F64: return .real(raw.f64)
    case MARLIN_VALUE_STRING: return .text(decoded(raw.data, raw.bytes))
    case MARLIN_VALUE_ARRAY: return try array(of: raw)
    default: throw unknown(raw.kind)
    }
  }

  private func array(of raw: marlin_value) throws(MarlinError) -> Value {
    switch raw.element_type {
    case MARLIN_VALUE_BOOL: .bools(elements(of: raw, as: UInt8.self).map { $0 != 0 })
    case MARLIN_VALUE_I8: .integers(elements(of: raw, as: Int8.self).map { Int64($0) })
    case MARLIN_VALUE_I16: .integers(elements(of: raw, as: Int16.self).map { Int64($0) })
    case MARLIN_VALUE_I32: .integers(elements(of: raw, as: Int32.self).map { Int64($0) })
    case MARLIN_VALUE_I64: .integers(elements(of: raw, as: Int64.self))
    case MARLIN_VALUE_U8: .naturals(elements(of: raw, as: UInt8.self).map { UInt64($0) })
    case MARLIN_VALUE_U16: .naturals(elements(of: raw, as: UInt16.self).map { UInt64($0) })
    case MARLIN_VALUE_U32: .naturals(elements(of: raw, as: UInt32.self).map { UInt64($0) })
    case MARLIN_VALUE_U64: .naturals(elements(of: raw, as: UInt64.self))
    case MARLIN_VALUE_F32: .reals(elements(of: raw, as: Float.self).map { Double($0) })
    case MARLIN_VALUE_F64: .reals(elements(of: raw, as: Double.self))
    case MARLIN_VALUE_STRING: .texts(try texts(of: raw))
    default: throw unknown(raw.element_type)
    }
  }

  private func texts(of raw: marlin_value) throws(MarlinError) -> [String] {
    var array = raw
    var next: UnsafePointer<CChar>?
    var bytes: UInt64 = 0
    var texts: [String] = []
    for _ in 0..<raw.count {
      try call(keeping: self) { api, error in api.pointee.value_next_string(&array, &next, &bytes, error) }
      texts.append(decoded(next, bytes))
    }
    return texts
  }
}

/// The elements may begin at any byte.
private func elements<T: BitwiseCopyable>(of raw: marlin_value, as type: T.Type) -> [T] {
  (0..<Int(raw.count)).map { raw.data.loadUnaligned(fromByteOffset: $0 * MemoryLayout<T>.size, as: T.self) }
}

private func decoded(_ text: UnsafeRawPointer?, _ bytes: UInt64) -> String {
  String(decoding: UnsafeRawBufferPointer(start: text, count: Int(bytes)), as: UTF8.self)
}

private func unknown(_ kind: marlin_value_type) -> MarlinError {
  MarlinError(.unsupported, "values of type \(kind) came after this version of the package")
}
