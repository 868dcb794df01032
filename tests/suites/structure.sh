# about: the sources: include arrows, sizes, words, budgets; the figures of the README
# inputs: .
# seconds: 15
# when: core
# data: .
built tests tests/structure/all
programs build/release structure
