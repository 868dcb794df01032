internal import CMetalMarlin

/// What failed, the code of the system or device behind it, and the message: what was expected, what was found, and where.
///
/// Every call of this package that can fail throws this type and no other.
public struct MarlinError: Error, Hashable, Sendable, CustomStringConvertible {
  /// Which kind of failure.
  public let status: Status
  /// errno, CUresult or NSError.code; 0 when there is none.
  public let nativeCode: Int32
  /// What was expected, what was found, and where.
  public let message: String

  /// `MARLIN_E_SHAPE: C has 5 columns, ...`
  public var description: String { "\(status): \(message)" }

  init(_ status: Status, _ message: String) {
    self.status = status
    nativeCode = 0
    self.message = message
  }

  init(status: marlin_status, _ error: marlin_error) {
    self.status = Status(rawValue: status)
    nativeCode = error.native_code
    message = text(error.message)
  }
}
