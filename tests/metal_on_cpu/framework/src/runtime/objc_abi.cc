// Lets GCC's libobjc load what clang emits for -fobjc-runtime=objfw, the only ABI with the old message lookup under which clang
// allows ARC. The two differ in three ways, all put right here, before libobjc sees a module:
//  - the number of the ABI, in each module and each protocol;
//  - instance variables: clang leaves their offsets relative to the end of the superclass, whose size only run time knows;
//  - modules may come before those of their superclasses, when several libraries and files make up a program: they wait.
// C++ exceptions: clang names libobjc's personality function for .mm files, which knows nothing of C++ handlers.
#include <dlfcn.h>
#include <unwind.h>

#include <cstddef>
#include <cstring>
#include <mutex>
#include <vector>

#include "runtime/protocols.h"

namespace {

struct ProtocolList;

struct Protocol {
  void* isa;  // a number until libobjc has set the class
  const char* name;
  ProtocolList* protocols;
};

struct ProtocolList {
  ProtocolList* next;
  size_t count;
  Protocol* list[1];
};

struct IvarList {
  int count;
  struct {
    const char *name, *type;
    int offset;
  } ivars[1];
};

struct Class {
  void* isa;
  const char* super_name;  // the class itself once libobjc has resolved it
  const char* name;
  long version;
  unsigned long info;
  long instance_size;  // of its own part, negated, until laid out
  IvarList* ivars;
  void *methods, *dispatch_table, *subclasses, *siblings;
  ProtocolList* protocols;
  void* gc_type;
  long abi_version;
  int** ivar_offsets;
};

struct Category {
  const char *name, *class_name;
  void *instance_methods, *class_methods;
  ProtocolList* protocols;
};

struct SymbolTable {
  unsigned long selector_count;
  void* selectors;
  unsigned short class_count, category_count;
  void* definitions[1];  // classes, then categories

  Class* class_at(int i) const { return static_cast<Class*>(definitions[i]); }
  Category* category_at(int i) const { return static_cast<Category*>(definitions[class_count + i]); }
  Class* find(const char* name) const {
    for (int i = 0; i < class_count; ++i) {
      if (std::strcmp(class_at(i)->name, name) == 0) return class_at(i);
    }
    return nullptr;
  }
};

struct Module {
  unsigned long version, size;
  const char* name;
  SymbolTable* symbols;
};

constexpr unsigned long kGccVersion = 8;
constexpr size_t kGccProtocol = 2, kClangProtocol = 3;

extern "C" void* objc_lookUpClass(const char* name);
extern "C" size_t class_getInstanceSize(void* type);

void adopt(ProtocolList* list) {
  for (; list != nullptr; list = list->next) {
    for (size_t i = 0; i < list->count; ++i) {
      Protocol* protocol = list->list[i];
      if (protocol == nullptr) continue;
      if (reinterpret_cast<size_t>(protocol->isa) == kClangProtocol) protocol->isa = reinterpret_cast<void*>(kGccProtocol);
      adopt(protocol->protocols);
    }
  }
}

void lay_out(Class* type, const SymbolTable& symbols) {
  if (type->instance_size > 0) return;
  size_t base = 0;
  if (type->super_name != nullptr) {
    if (Class* super = symbols.find(type->super_name)) {
      lay_out(super, symbols);
      base = super->instance_size;
    } else {
      base = class_getInstanceSize(objc_lookUpClass(type->super_name));
    }
  }
  base = (base + 7) & ~size_t{7};  // no instance variable here needs more than 8
  for (int i = 0; type->ivars != nullptr && i < type->ivars->count; ++i) {
    type->ivars->ivars[i].offset += static_cast<int>(base);
    if (type->ivar_offsets != nullptr) *type->ivar_offsets[i] = type->ivars->ivars[i].offset;
  }
  type->instance_size = static_cast<long>(base) - type->instance_size;
}

bool supers_known(const SymbolTable& symbols) {
  for (int i = 0; i < symbols.class_count; ++i) {
    const char* super = symbols.class_at(i)->super_name;
    if (super != nullptr && symbols.find(super) == nullptr && objc_lookUpClass(super) == nullptr) return false;
  }
  return true;
}

void pass_on(Module* module) {
  using Load = void (*)(Module*);
  static const Load load = reinterpret_cast<Load>(dlsym(RTLD_NEXT, "__objc_exec_class"));
  load(module);
}

bool load(Module* module) {
  const SymbolTable& symbols = *module->symbols;
  if (!supers_known(symbols)) return false;
  for (int i = 0; i < symbols.class_count; ++i) {
    adopt(symbols.class_at(i)->protocols);
    lay_out(symbols.class_at(i), symbols);
  }
  for (int i = 0; i < symbols.category_count; ++i) adopt(symbols.category_at(i)->protocols);
  module->version = kGccVersion;
  module->size = sizeof(Module);
  pass_on(module);
  return true;
}

bool conforms(const ProtocolList* list, const char* name) {
  for (; list != nullptr; list = list->next) {
    for (size_t i = 0; i < list->count; ++i) {
      const Protocol* const protocol = list->list[i];
      if (protocol != nullptr && (std::strcmp(protocol->name, name) == 0 || conforms(protocol->protocols, name))) return true;
    }
  }
  return false;
}

}  // namespace

// By name: each module brings its own copy of a protocol, and libobjc never sees those that only @protocol(...) names.
bool metal_framework::class_conforms(const void* type, const void* protocol) {
  return conforms(static_cast<const ::Class*>(type)->protocols, static_cast<const ::Protocol*>(protocol)->name);
}

extern "C" __attribute__((visibility("default"))) void __objc_exec_class(Module* module) {
  if (module->version == kGccVersion) return pass_on(module);
  static std::mutex* const mutex = new std::mutex;  // neither may be destroyed before the last library is loaded
  static std::vector<Module*>* const waiting = new std::vector<Module*>;
  const std::lock_guard<std::mutex> lock(*mutex);
  waiting->push_back(module);
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t i = 0; i < waiting->size(); ++i) {
      if (!load((*waiting)[i])) continue;
      waiting->erase(waiting->begin() + static_cast<ptrdiff_t>(i));
      progress = true;
      break;
    }
  }
}

extern "C" _Unwind_Reason_Code __gxx_personality_v0(int, _Unwind_Action, _Unwind_Exception_Class, _Unwind_Exception*,
                                                    _Unwind_Context*);

extern "C" __attribute__((visibility("default"))) _Unwind_Reason_Code __gnu_objc_personality_v0(
    int version, _Unwind_Action actions, _Unwind_Exception_Class type, _Unwind_Exception* exception, _Unwind_Context* context) {
  return __gxx_personality_v0(version, actions, type, exception, context);
}

// Messages that return a structure are looked up as any other; for a receiver that is nil, clang clears the result itself.
extern "C" void* objc_msg_lookup(void* receiver, void* selector);
extern "C" void* objc_msg_lookup_super(void* super, void* selector);
extern "C" __attribute__((visibility("default"))) void* objc_msg_lookup_stret(void* receiver, void* selector) {
  return objc_msg_lookup(receiver, selector);
}
extern "C" __attribute__((visibility("default"))) void* objc_msg_lookup_super_stret(void* super, void* selector) {
  return objc_msg_lookup_super(super, selector);
}
