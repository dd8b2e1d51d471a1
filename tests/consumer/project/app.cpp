#include "round.hpp"

int main() { return decodes_a_round() ? 0 : 1; }
