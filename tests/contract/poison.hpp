// Macro names that other projects and system headers are known to take. A public header must not
// use them as names. The standard library is included before: it is not on trial.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// <complex.h>, <sys/sysmacros.h>, <termios.h>, <curses.h>
#define I poisoned !
#define B0 poisoned !
#define major poisoned !
#define minor poisoned !
#define makedev poisoned !
#define ECHO poisoned !
#define ERR poisoned !
// <windows.h>
#define min poisoned !
#define max poisoned !
#define small poisoned !
#define near poisoned !
#define far poisoned !
#define interface poisoned !
#define IN poisoned !
#define OUT poisoned !
#define OPTIONAL poisoned !
#define DELETE poisoned !
#define ERROR poisoned !
#define VOID poisoned !
// <X11/X.h>
#define Bool poisoned !
#define None poisoned !
#define Status poisoned !
#define Success poisoned !
// everybody's own
#define ASSERT poisoned !
#define CHECK poisoned !
#define DEBUG poisoned !
#define EXPECT poisoned !
#define FAIL poisoned !
#define FALSE poisoned !
#define INFO poisoned !
#define LOG poisoned !
#define OK poisoned !
#define REQUIRE poisoned !
#define TRUE poisoned !
#define T poisoned !
#define N poisoned !
