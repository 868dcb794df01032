// What checkpoints say about their models.
import Foundation
import MetalMarlin
import Testing

private func bytes<T: BitwiseCopyable>(_ value: T) -> Data { withUnsafeBytes(of: value) { Data($0) } }
private func text(_ value: String) -> Data { bytes(UInt64(value.utf8.count)) + Data(value.utf8) }
private func array(_ type: Int32, _ elements: [Data]) -> Data {
  bytes(type) + bytes(UInt64(elements.count)) + elements.reduce(Data(), +)
}

@Suite struct ValueTests {
  @Test func everyTypeOfAGGUF() throws {
    let entries: [(String, Int32, Data, Value)] = [
      ("u8", 0, bytes(UInt8.max), .natural(255)), ("i8", 1, bytes(Int8.min), .integer(-128)),
      ("u16", 2, bytes(UInt16.max), .natural(65535)), ("i16", 3, bytes(Int16.min), .integer(-32768)),
      ("u32", 4, bytes(UInt32.max), .natural(4_294_967_295)), ("i32", 5, bytes(Int32.min), .integer(-2_147_483_648)),
      ("f32", 6, bytes(Float(0.5)), .real(0.5)), ("yes", 7, bytes(UInt8(1)), .bool(true)),
      ("text", 8, text("grüß"), .text("grüß")), ("u64", 10, bytes(UInt64.max), .natural(.max)),
      ("i64", 11, bytes(Int64.min), .integer(.min)), ("f64", 12, bytes(1e300), .real(1e300)),
      ("a0", 9, array(0, [bytes(UInt8.max)]), .naturals([255])), ("a1", 9, array(1, [bytes(Int8.min)]), .integers([-128])),
      ("a2", 9, array(2, [bytes(UInt16.max)]), .naturals([65535])),
      ("a3", 9, array(3, [bytes(Int16.min)]), .integers([-32768])),
      ("a4", 9, array(4, [bytes(UInt32.max)]), .naturals([4_294_967_295])),
      ("a5", 9, array(5, [bytes(Int32(1)), bytes(Int32(-2))]), .integers([1, -2])),
      ("a6", 9, array(6, [bytes(Float(0.5))]), .reals([0.5])),
      ("a7", 9, array(7, [bytes(UInt8(1)), bytes(UInt8(0))]), .bools([true, false])),
      ("a8", 9, array(8, [text("a"), text(""), text("bc")]), .texts(["a", "", "bc"])),
      ("a10", 9, array(10, [bytes(UInt64.max)]), .naturals([.max])),
      ("a11", 9, array(11, [bytes(Int64.min)]), .integers([.min])),
      ("a12", 9, array(12, []), .reals([])),
    ]
    var file = Data("GGUF".utf8) + bytes(UInt32(3)) + bytes(UInt64(0)) + bytes(UInt64(entries.count))
    for (key, type, value, _) in entries { file += text(key) + bytes(type) + value }
    let path = try scratch("values") + "/m.gguf"
    try file.write(to: URL(filePath: path))
    let checkpoint = try Checkpoint(path)
    for (key, _, _, expected) in entries { #expect(try checkpoint.value(key) == expected, "\(key)") }
    let all = try checkpoint.values()
    #expect(all.map(\.key) == entries.map(\.0))
    #expect(all.map(\.value) == entries.map(\.3))
  }

  @Test func membersOfConfig() throws {
    let checkpoint = try Checkpoint(data("gptq-v1-sym-g128"))
    #expect(try checkpoint.value("quantization_config.bits") == .integer(4))
    #expect(try checkpoint.value("quantization_config.quant_method") == .text("gptq"))
    #expect(try checkpoint.value("quantization_config") == nil)
    expectFailure(.argument, "NUL") { () throws(MarlinError) in try checkpoint.value("a\0b") }
  }

  @Test func aSplitModel() throws {
    #expect(try Checkpoint(data("gguf-split")).value("general.architecture") == .text("llama"))
  }
}
