#include "round.hpp"

extern "C" bool plugin_run() { return decodes_a_round(); }
