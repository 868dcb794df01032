# about: the metal-marlin command from end to end
# inputs: src include tools tests/tools
# seconds: 145
# when: core
# data: tools
built tests tests/tools/all metal-marlin
programs build/release tools
