// Loads the plugin, knowing nothing of ddtree.
#include <cstdio>
#include <dlfcn.h>

int main(int, char** argv) {
  void* const plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    std::puts(dlerror());
    return 2;
  }
  auto const run = reinterpret_cast<bool (*)()>(dlsym(plugin, "plugin_run"));
  return run != nullptr && run() ? 0 : 1;
}
