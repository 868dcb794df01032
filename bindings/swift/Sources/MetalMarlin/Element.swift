internal import CMetalMarlin

/// A type of elements that the library knows. Every pattern of bits must be a value of it.
///
/// A type of your own serves too when it has the size that its ``dtype`` has.
public protocol Element: BitwiseCopyable, Sendable {
  /// Its name in the library.
  static var dtype: DType { get }
}

/// The types that activations, results and bias can have.
public protocol FloatElement: Element {}

extension Float: FloatElement { public static var dtype: DType { .f32 } }
#if !(os(macOS) && arch(x86_64))  // Swift has no Float16 there
  extension Float16: FloatElement { public static var dtype: DType { .f16 } }
#endif
extension BFloat16: FloatElement { public static var dtype: DType { .bf16 } }
extension Int8: Element { public static var dtype: DType { .i8 } }
extension UInt8: Element { public static var dtype: DType { .u8 } }
extension Int16: Element { public static var dtype: DType { .i16 } }
extension Int32: Element { public static var dtype: DType { .i32 } }
extension UInt32: Element { public static var dtype: DType { .u32 } }
extension Int64: Element { public static var dtype: DType { .i64 } }
extension UInt4x2: Element { public static var dtype: DType { .u4 } }
extension E8M0: Element { public static var dtype: DType { .e8m0 } }
extension E4M3: Element { public static var dtype: DType { .e4m3 } }

/// The upper half of a `Float`.
public struct BFloat16: Hashable, BitwiseCopyable, Sendable {
  public var bitPattern: UInt16

  public init(bitPattern: UInt16) { self.bitPattern = bitPattern }

  /// Rounds to the nearest, to even on ties.
  public init(_ value: Float) {
    let bits = value.bitPattern
    // A NaN stays one when its payload is cut off.
    bitPattern = value.isNaN ? UInt16(bits >> 16) | 0x40 : UInt16((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
  }
}

extension Float {
  /// Exact.
  public init(_ value: BFloat16) { self.init(bitPattern: UInt32(value.bitPattern) << 16) }
}

/// Two 4-bit codes, the first in the low nibble.
public struct UInt4x2: Hashable, BitwiseCopyable, Sendable {
  public var bitPattern: UInt8
  public init(bitPattern: UInt8) { self.bitPattern = bitPattern }
}

/// A power of two, 2^(e - 127): the scale of MXFP4.
public struct E8M0: Hashable, BitwiseCopyable, Sendable {
  public var bitPattern: UInt8
  public init(bitPattern: UInt8) { self.bitPattern = bitPattern }
}

/// An 8-bit float of 4 exponent bits, the FN variant: the scale of NVFP4.
public struct E4M3: Hashable, BitwiseCopyable, Sendable {
  public var bitPattern: UInt8
  public init(bitPattern: UInt8) { self.bitPattern = bitPattern }
}

extension DType {
  /// Of one element; nil for a type that this version does not know.
  var bits: Int? {
    switch self {
    case .u4: 4
    case .i8, .u8, .e8m0, .e4m3: 8
    case .f16, .bf16, .i16: 16
    case .f32, .i32, .u32: 32
    case .i64: 64
    default: nil
    }
  }
}
