// copies LIBRARY OTHER...: several copies of ddtree in one process, the first of them visible to
// all others, as that of a program that links it. Each must run its own code: the message of an
// error is a string of the library that made it.
#include "ddtree/ddtree.h"

#include <cstdio>
#include <cstring>
#include <dlfcn.h>

namespace {

template <class Function>
Function* find(void* library, char const* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

bool is_in(void const* address, void const* function) {
  Dl_info a, b;
  return dladdr(address, &a) != 0 && dladdr(function, &b) != 0 && a.dli_fbase == b.dli_fbase;
}

}  // namespace

int main(int argc, char** argv) {
  void const* of_others[8] = {};
  for (int i = 1; i < argc && i < 8; ++i) {
    void* const library = dlopen(argv[i], RTLD_NOW | (i == 1 ? RTLD_GLOBAL : RTLD_LOCAL));
    if (library == nullptr) {
      std::puts(dlerror());
      return 2;
    }
    auto* const expand = find<decltype(ddtree_expand)>(library, "ddtree_expand");
    auto* const bytes = find<decltype(ddtree_accepted_bytes)>(library, "ddtree_accepted_bytes");
    auto* const name = find<decltype(ddtree_errc_name)>(library, "ddtree_errc_name");
    auto const* address = reinterpret_cast<void const*>(expand);
    for (void const* other : of_others) {
      if (other == address) {
        std::printf("%s was loaded already\n", argv[i]);
        return 2;
      }
    }
    of_others[i] = address;
    ddtree_status const s = expand(nullptr, nullptr, nullptr, nullptr, nullptr, {}, nullptr);
    bool const own = is_in(s.message, address) && is_in(name(s.code), address);
    if (!own || bytes(nullptr) != 0 || std::strncmp(s.message, "expand: ", 8) != 0) {
      std::printf("%s ran the code of another copy\n", argv[i]);
      return 1;
    }
  }
  return of_others[2] != nullptr ? 0 : 2;
}
