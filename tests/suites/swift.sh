# about: the Swift package: its tests, documentation, README, what it says of other versions, swift-format
# inputs: bindings/swift bindings/MetalMarlin bindings/checks.sh Package.swift include src/api
# seconds: 60
# when: changed
# Debian 12 has no Swift, and the command of that name in some systems is the client of an object store.
swift --version 2>/dev/null | grep -q 'Swift version' ||
  left_out "there is no Swift compiler; swift.org has one for this system, whose folder usr/bin belongs into PATH"
binding swift
