// Read by LeakSanitizer, when it is there: what libobjc allocates for its own tables of classes it never frees.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:objc_malloc\n"; }
