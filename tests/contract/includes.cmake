# cmake -D INCLUDE_DIR=... -P includes.cmake
# Public headers include the standard library and each other, nothing else; they define no macro
# that does not begin with DDTREE_; ddtree.hpp includes all of the headers beside it; ddtree.h has
# their constants.
cmake_minimum_required(VERSION 3.25)

file(GLOB_RECURSE headers RELATIVE ${INCLUDE_DIR}
  ${INCLUDE_DIR}/ddtree/*.h ${INCLUDE_DIR}/ddtree/*.hpp)
if(NOT headers)
  message(FATAL_ERROR "no header in ${INCLUDE_DIR}/ddtree")
endif()
foreach(header ${headers})
  file(STRINGS ${INCLUDE_DIR}/${header} lines REGEX "^[ \t]*#[ \t]*(include|import|define)")
  foreach(line ${lines})
    if(line MATCHES "include[ \t]*<([a-z_0-9]+|(stddef|stdint|stdbool)[.]h)>")
    elseif(line MATCHES "include[ \t]*\"(ddtree/[a-z_0-9/.]+)\"" AND CMAKE_MATCH_1 IN_LIST headers)
    elseif(line MATCHES "define[ \t]+DDTREE_")
    else()
      message(SEND_ERROR "${header}: ${line}")
    endif()
  endforeach()
endforeach()

file(STRINGS ${INCLUDE_DIR}/ddtree/ddtree.hpp umbrella REGEX "#include")
file(GLOB headers RELATIVE ${INCLUDE_DIR} ${INCLUDE_DIR}/ddtree/*.hpp)
list(REMOVE_ITEM headers ddtree/ddtree.hpp)
foreach(header ${headers})
  if(NOT "#include \"${header}\"" IN_LIST umbrella)
    message(SEND_ERROR "ddtree/ddtree.hpp does not include ${header}")
  endif()
endforeach()

# ddtree.h has every constant of the C++ headers.
file(READ ${INCLUDE_DIR}/ddtree/ddtree.h of_c)
foreach(header ${headers})
  file(STRINGS ${INCLUDE_DIR}/${header} constants REGEX "^inline constexpr ")
  foreach(constant ${constants})
    string(REGEX REPLACE ".* ([a-z_]+) = .*" "\\1" constant "${constant}")
    string(TOUPPER ${constant} constant)
    if(NOT of_c MATCHES "DDTREE_(FLAG_)?${constant} = ")
      message(SEND_ERROR "ddtree/ddtree.h has no DDTREE_${constant}, which is in ${header}")
    endif()
  endforeach()
endforeach()
