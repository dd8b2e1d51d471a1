// Loads the plugins, knowing nothing of ddtree, and runs each while all are there.
#include <cstdio>
#include <dlfcn.h>

int main(int argc, char** argv) {
  using run_function = bool();
  run_function* run[8] = {};
  for (int i = 1; i < argc && i < 8; ++i) {
    void* const plugin = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) {
      std::puts(dlerror());
      return 2;
    }
    run[i] = reinterpret_cast<run_function*>(dlsym(plugin, "plugin_run"));
    if (run[i] == nullptr || run[i] == run[i - 1]) return 2;
  }
  for (int i = 1; i < argc && i < 8; ++i) {
    if (!run[i]()) return 1;
  }
  return 0;
}
