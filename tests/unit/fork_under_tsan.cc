// Linked into tests whose forked children start threads, which ThreadSanitizer refuses unless told otherwise.
extern "C" const char* __tsan_default_options();                                // NOLINT: the sanitizer's name
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }  // NOLINT
