# about: the sources: include arrows, sizes, words, budgets; the figures of the README
# inputs: .
# seconds: 15
# when: core
# data: .
built tests metal_marlin_testing
programs build/release structure
