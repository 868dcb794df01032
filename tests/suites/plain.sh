# about: what needs a build without sanitizers: memory and steps of huge files, stacks, the library loaded and unloaded, its symbols, headers
# inputs: src include tests/problem tests/unit tests/abi tests/container bindings
# seconds: 45
# when: core
# data: include src/api bindings tests/abi
built tests metal_marlin abi_pinned abi_stack_test abi_plugin_test abi_threads_test abi_table_files unit_huge_test
programs build/release "unit|abi" -R '^unit_huge|^abi_(stack|plugin|threads)|^abi\.'
